"""The privacy of tables: against the exact δ of tiny batches, in two and three views."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from scipy import stats

from shuffledp.common.accounting.claims import check_central_claim, check_coalition_claim
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import AccountingError
from shuffledp.common.task.domain_spec import AttributeSpec
from shuffledp.common.task.draft import RelayDraft, TableDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import GeometricNoise
from shuffledp.common.task.task import Task, honest_share
from tests.support.changed_tasks import changed
from tests.support.exhaustive_delta import averaged, beside, excess, histogram_distribution, summed
from tests.support.kind_tasks import kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.reductions import geometric_noise
from tests.support.tasks import draft

_BITS: Final = tuple(AttributeSpec(name=name, labels=("no", "yes")) for name in "abc")
_VALUES: Final = tuple(itertools.product((0, 1), repeat=3))
_EPSILONS: Final = (0.0, 0.3, 1.0, 2.5)
_PATH: Final = (("a", "b"), ("b", "c"))
_MARGINS: Final = (("a", "b"), ("b",), ("c",))
_LARGE: Final = geometric_noise(40, 0.5, 0.5, 120)
_NOISES: Final = (geometric_noise(1, 0.5, 0.25, 2), geometric_noise(1, 0.25, 0.5, 3))

Law = Mapping[Any, float]


def _task(pairs: tuple[tuple[str, ...], ...], protocol: str = "tables", **changes: Any) -> Task:
    form = TableDraft(attributes=_BITS, tables=pairs)
    return kind_task(protocol, tables=form, n_min=400, target_size=400, **changes)


def _with_noise(task: Task, noises: tuple[GeometricNoise, ...]) -> Task:
    """Give each shuffler less noise than any claim allows, for each table."""
    shufflers = tuple(replace(each, noises=noises) for each in task.shufflers)
    return replace(task, shufflers=shufflers)


def _cells(task: Task, value: Sequence[int]) -> list[int]:
    """Return the cell of a value in every table, each attribute being a bit."""
    tables = task.mechanism.tables  # type: ignore[union-attr]  # a TableSpec's
    return [sum(value[a] << len(t) - 1 - at for at, a in enumerate(t)) for t in tables]


def _hidden(own: int, size: int, fixed: int, extra: int, chance: float) -> Law:
    """Enumerate a table's histogram: the victim's cell, and dummies, some of them by chance."""
    return averaged(
        (float(stats.binom.pmf(n, extra, chance)), histogram_distribution(own, size, fixed + n))
        for n in range(extra + 1)
    )


def _worst(task: Task, view: Any) -> list[float]:
    """Return the largest δ of any two values at each ε; `view` enumerates a table's cell."""
    worlds = [beside(*itertools.starmap(view, enumerate(_cells(task, v)))) for v in _VALUES]
    pairs = [*itertools.permutations(worlds, 2)]
    return [max(excess(pair, epsilon) for pair in pairs) for epsilon in _EPSILONS]


@pytest.mark.parametrize(
    ("pairs", "averages", "users", "refused", "fraction"),
    [
        (_PATH, (1.0, 2.0), 2, 0, 1.0),
        (_PATH, (1.5, 1.0), 2, 0, 1.0),
        (_PATH, (1.0, 1.0), 4, 0, 0.5),
        (_PATH, (1.0, 1.0), 4, 1, 0.75),
        (_PATH, (2.0, 1.0), 3, 1, 1.0),
        (_MARGINS, (1.0, 1.0, 2.0), 2, 0, 1.0),
        (_MARGINS, (1.25, 1.5, 1.0), 2, 0, 1.0),
        (_MARGINS, (1.0, 1.0, 1.0), 5, 1, 0.6),
        ((), (1.0, 1.0, 1.0), 2, 0, 1.0),
    ],
)
def test_no_bound_by_users_dummies_is_below_the_exact_delta(
    pairs: tuple[tuple[str, ...], ...],
    averages: tuple[float, ...],
    users: int,
    refused: int,
    fraction: float,
) -> None:
    """
    The victim's cells and the honest users' dummies, of any two values; all else is known.

    A refused report may have been any dummy: the exact δ is the largest of those without one dummy
    of one table.
    """
    spec = ViewDummies(averages=tuple(round(each * 2**32) for each in averages))
    task = changed(_task(pairs), dummies=spec)
    honest = honest_share(users, fraction)
    release = PrivacyParameters.of(task).release_of(users, honest, honest, refused)
    sizes = task.view_sizes

    worst = []
    for missing in range(len(sizes) if refused else 1):

        def view(place: int, cell: int, missing: int = missing) -> Law:
            law = spec.views[place]
            fixed = honest * law.per_user - refused * (place == missing)
            chance = law.extra_probability
            return _hidden(cell, sizes[place], fixed, honest * bool(chance), chance)

        worst.append(_worst(task, view))
    for epsilon, *exact in zip(_EPSILONS, *worst, strict=True):
        bound = release.delta(epsilon)
        assert max(exact) <= bound
        if not refused:
            assert bound <= 1.03 * max(exact) + 1e-9


def _noisy(own: int, size: int, noises: Sequence[GeometricNoise]) -> Law:
    """Enumerate a table's histogram under every shuffler's noise on each cell."""
    chances = [noise.probabilities().tolist() for noise in noises]
    cells = [
        {tuple(z * (cell == at) for at in range(size)): p for z, p in enumerate(each)}
        for cell in range(size)
        for each in chances
    ]
    return summed({tuple(int(own == at) for at in range(size)): 1.0}, *cells)


@pytest.mark.parametrize(
    ("pairs", "noises"),
    [(_PATH, _NOISES[:1] * 2), ((("a", "b"), ("c",)), _NOISES), (_MARGINS, _NOISES[:1] * 3)],
)
def test_no_bound_by_a_shufflers_noise_is_below_the_exact_delta(
    pairs: tuple[tuple[str, ...], ...], noises: tuple[GeometricNoise, ...]
) -> None:
    """Every table has noise of its own; nobody else needs to be honest, or present."""
    task = _with_noise(_task(pairs, "geo-tables"), noises)
    release = PrivacyParameters.of(task).release_of(1, 1, 1)
    sizes = task.view_sizes

    worst = _worst(task, lambda at, cell: _noisy(cell, sizes[at], noises[at : at + 1]))
    for epsilon, exact in zip(_EPSILONS, worst, strict=True):
        assert exact <= release.delta(epsilon) <= 1.03 * exact + 1e-9


def test_no_bound_by_two_shufflers_is_below_the_exact_delta() -> None:
    """Their noise adds up in every table; against one of them with the analyzer, half is left."""
    noises = _NOISES[:1] * 2
    pairs = (("a",), ("b", "c"))
    relay = RelayDraft(name="second.example", key=draft().shuffler_key, noise=_LARGE)
    claimed = _task(pairs, "geo-tables", shuffler_name="first.example", relay=relay)
    task = _with_noise(claimed, noises)
    parameters, sizes = PrivacyParameters.of(task), task.view_sizes

    for release, number in ((parameters.release_of(1, 1, 1), 2), (parameters.either_alone, 1)):
        worst = _worst(task, lambda at, cell, n=number: _noisy(cell, sizes[at], noises[:n]))
        for epsilon, exact in zip(_EPSILONS, worst, strict=True):
            assert exact <= release.delta(epsilon) <= 1.03 * exact + 1e-9
    check_central_claim(claimed)
    check_coalition_claim(claimed)
    assert claimed.central_epsilon < claimed.coalition_epsilon


def test_a_single_table_costs_what_its_histogram_costs() -> None:
    """No composition makes it coarser: the claim is that of plain items among the same dummies."""
    one = kind_task("tables", tables=TableDraft(attributes=_BITS[:2]), dummies_per_user=3.5)
    same = protocol_task("puredump", domain_size=4, labels=())

    assert one.n_min == same.n_min
    assert (one.dummies, one.central_epsilon) == (same.dummies, same.central_epsilon)


def test_too_many_kinds_of_noise_are_refused_before_anything_is_computed() -> None:
    """Each takes a device a tenth of a second."""
    attributes = tuple(replace(_BITS[0], name=f"attribute {n}") for n in range(17))
    form = TableDraft(attributes=attributes, tables=tuple((each.name,) for each in attributes))
    noise = [geometric_noise(1, 0.5, 0.25, 2 + n) for n in range(17)]
    with pytest.raises(AccountingError, match=r"17 different distributions of noise .* at most 16"):
        kind_task("geo-tables", tables=form, noises=tuple(noise))
