"""Guarantees from the lengths that arrived: never below the exact δ, whatever was kept away."""

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
import pytest

from shuffledp.common.accounting.assumptions import BY_LENGTH, NOBODY_DROPS
from shuffledp.common.accounting.dummy_entries import arrivals_of
from shuffledp.common.accounting.guarantees import charged_release, guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import AccountingError, WireError
from shuffledp.common.messages.guarantee import NONE_WAIVED, CheckName, Waived, claimed
from shuffledp.common.task.cluster_dummies import CHANCE_SUM, ClusterDummies
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.uniform_dummies import (
    NO_DUMMIES,
    BinomialDummies,
    FractionalDummies,
    NegativeBinomialDummies,
)
from tests.support.exhaustive_delta import (
    Distribution,
    beside,
    excess,
    grr_distribution,
    histogram_distribution,
    summed,
    true_delta,
    uniform_distribution,
)
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.reductions import of_grr, parameters
from tests.support.waivers import WAIVABLE

_EPSILONS: Final = (0.0, 0.5, 1.5, 4.0)
_HALF: Final = CHANCE_SUM // 2
_LAWS: Final[dict[str, AnyDummies]] = {
    "fractional": FractionalDummies(per_user=0, extra_weight=_HALF),
    "one more": FractionalDummies(per_user=1, extra_weight=_HALF),
    "binomial": BinomialDummies(per_user=0, trials=2, extra_weight=_HALF),
    "negative binomial": NegativeBinomialDummies(per_user=0, trials=1, extra_weight=_HALF, most=2),
}


def _parameters(
    spec: AnyDummies, by_length: Sequence[int], *, answers: int = 3, local_epsilon: float = math.inf
) -> PrivacyParameters:
    return parameters(
        of_grr(answers, local_epsilon),
        spec,
        waived=Waived(("lengths",), tuple(by_length)),
        arrivals=arrivals_of(spec, by_length),
    )


def _batches(lengths: int, users: int) -> Iterator[tuple[int, ...]]:
    """Yield the numbers by length of every batch that can arrive: all that dropping can leave."""
    for drawn in itertools.combinations_with_replacement(range(lengths), users):
        yield tuple(drawn.count(length) for length in range(lengths))


def _reports(items: int, local_epsilon: float) -> list[Distribution]:
    if math.isinf(local_epsilon):
        return [{(item,): 1.0} for item in range(items)]
    return [grr_distribution(item, items, local_epsilon) for item in range(items)]


@pytest.mark.parametrize("law", _LAWS)
@pytest.mark.parametrize("local_epsilon", [1.0, math.inf])
@pytest.mark.parametrize(("users", "honest"), [(1, 1), (2, 2), (2, 1), (3, 2)])
def test_uniform_dummies_that_arrived_protect_as_stated(
    law: str, local_epsilon: float, users: int, honest: int
) -> None:
    """Enumerated: every batch that dropping leaves, every choice of the honest, all reports."""
    spec, distributions = _LAWS[law], _reports(3, local_epsilon)
    uniform = uniform_distribution([(item,) for item in range(3)])

    @cache
    def exact(dummies: int, epsilon: float) -> float:
        return true_delta(
            distributions, users=honest, dummies=dummies, dummy=uniform, epsilon=epsilon
        )

    for by_length in _batches(len(spec.lengths), users):
        release = _parameters(spec, by_length, local_epsilon=local_epsilon).release_of(
            users, honest, honest
        )
        arrived = np.repeat(spec.lengths, by_length).tolist()
        totals = {sum(chosen) for chosen in itertools.combinations(arrived, honest)}
        for epsilon, total in itertools.product(_EPSILONS, totals):
            assert exact(total, epsilon) <= release.delta(epsilon) * (1 + 1e-9) + 1e-15


def test_the_distribution_of_the_task_would_promise_too_much() -> None:
    """Of two users without dummies in a batch, half of whose users should have one."""
    spec, uniform = _LAWS["fractional"], uniform_distribution([(item,) for item in range(3)])
    exact = true_delta(_reports(3, 1.0), users=2, dummies=0, dummy=uniform, epsilon=0.5)
    seen = _parameters(spec, (2, 0), local_epsilon=1.0)
    assumed = dataclasses.replace(seen, arrivals=(), waived=NONE_WAIVED)

    assert assumed.release_of(2, 2, 2).delta(0.5) < 0.9 * exact
    assert exact <= seen.release_of(2, 2, 2).delta(0.5)


_ONE: Final = ((1, 0, 3), (0, 1, 1))
_CLUSTERS: Final = {
    "one room": ClusterDummies(
        negative_weight=1, trials=1, clusters=_ONE, rooms=((1, _HALF, _HALF),)
    ),
    "two rooms": ClusterDummies(
        negative_weight=1,
        trials=1,
        clusters=(*_ONE, (1, 1, 1)),
        rooms=((1, _HALF // 2, _HALF), (2, _HALF, _HALF // 2)),
    ),
    "a length with two meanings": ClusterDummies(
        negative_weight=1,
        trials=2,
        clusters=(*_ONE, (1, 1, 1)),
        rooms=((1, _HALF, _HALF), (2, _HALF // 2, _HALF)),
    ),
}
View = tuple[int, ...]


def _of_submission(spec: ClusterDummies, items: int) -> dict[int, dict[View, float]]:
    """Return the joint law of a submission's length and its clusters' counts, by length."""
    trial: dict[int, dict[View, float]] = {0: {(0,) * 2 * items: 1 - spec.shown}}
    for (size, shown, filled), types in zip(spec.rooms, spec.types_by_room(), strict=True):
        full, weights = filled / CHANCE_SUM, sum(weight for *_, weight in types)
        content: dict[View, float] = {(0,) * 2 * items: shown / CHANCE_SUM * (1 - full)}
        for (plus, minus, weight), item in itertools.product(types, range(items)):
            counts = [0] * 2 * items
            counts[item], counts[items + item] = plus, minus
            content[tuple(counts)] = shown / CHANCE_SUM * full * weight / weights / items
        trial[size] = content
    found: dict[int, dict[View, float]] = {0: {(0,) * 2 * items: 1.0}}
    for _ in range(spec.trials):
        more: dict[int, Counter[View]] = defaultdict(Counter)
        for (length, one), (size, other) in itertools.product(found.items(), trial.items()):
            more[length + size].update(summed(one, other))
        found = {length: dict(laws) for length, laws in more.items()}
    return found


@pytest.mark.parametrize("name", _CLUSTERS)
@pytest.mark.parametrize(("users", "honest"), [(1, 1), (2, 2), (3, 3), (3, 2)])
def test_rooms_that_arrived_protect_as_stated(name: str, users: int, honest: int) -> None:
    """Enumerated: every batch, every choice of the honest, all lengths and all reports seen."""
    clusters, items = _CLUSTERS[name], 2
    spec = clusters
    submissions = _of_submission(clusters, items)
    for by_length in _batches(len(spec.lengths), users):
        release = _parameters(spec, by_length, answers=items).release_of(users, honest, honest)
        arrived = np.repeat(spec.lengths, by_length).tolist()
        for chosen in set(itertools.combinations(arrived, honest)):
            around: Mapping[View, float] = {(0,) * 2 * items: 1.0}
            for length in chosen:
                around = summed(around, submissions[length])
            total = math.fsum(around.values())
            for epsilon in _EPSILONS:
                exact = math.fsum(
                    max(0.0, p - math.exp(epsilon) * around.get((a + 1, b - 1, *rest), 0.0))
                    for (a, b, *rest), p in around.items()
                )
                assert exact / total <= release.delta(epsilon) + 1e-12


_VIEWS: Final = ViewDummies(averages=(_HALF, _HALF // 2, 5 * _HALF // 2))


@pytest.mark.parametrize("users", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_hierarchys_dummies_that_arrived_protect_as_stated(users: int) -> None:
    """Enumerated: the numbers of each level, given all lengths, and the nodes they name."""
    levels, sizes = _VIEWS.views, (2, 2, 3)
    reductions = tuple(of_grr(size, math.inf) for size in sizes)
    for by_length in _batches(len(_VIEWS.lengths), users):
        whole = _parameters(_VIEWS, by_length)
        views = tuple(
            dataclasses.replace(whole, reduction=of_view, dummies=added, arrivals=(arrived,))
            for of_view, added, arrived in zip(reductions, levels, whole.arrivals, strict=True)
        )
        release = dataclasses.replace(whole, views=views).release_of(users, users, users)
        law: Mapping[View, float] = {(0, 0, 0): 1.0}
        for length in np.repeat(_VIEWS.lengths, by_length).tolist():
            one = {
                extra: math.prod(
                    each.extra_probability if more else 1 - each.extra_probability
                    for each, more in zip(levels, extra, strict=True)
                )
                for extra in itertools.product((0, 1), repeat=3)
                if sum(extra) == length - _VIEWS.certain
            }
            law = summed(law, {extra: p / math.fsum(one.values()) for extra, p in one.items()})
        certain = tuple(users * each.per_user for each in levels)
        for epsilon in _EPSILONS:
            exact = math.fsum(
                chance
                * excess(_histograms(tuple(np.add(numbers, certain).tolist()), sizes), epsilon)
                for numbers, chance in law.items()
            )
            assert exact <= release.delta(epsilon) + 1e-9


@cache
def _histograms(numbers: tuple[int, ...], sizes: tuple[int, ...]) -> list[Mapping[View, float]]:
    """Return the views of nodes 0 and 1 of every level, with so many uniform nodes of each."""
    levels = list(zip(sizes, numbers, strict=True))
    return [beside(*(histogram_distribution(own, *level) for level in levels)) for own in (0, 1)]


@pytest.mark.parametrize("name", [*_CLUSTERS, "views"])
def test_a_length_says_how_many_rooms_or_nodes_at_least(name: str) -> None:
    """The exact probability of fewer than stated is below the charge, for any honest users."""
    spec: AnyDummies = _VIEWS
    if name != "views":
        spec = _CLUSTERS[name]
    rng = np.random.default_rng(4)
    for of_kind in arrivals_of(spec, rng.integers(0, 90, len(spec.lengths)).tolist()):
        users = int(of_kind.by_length.sum()) * 4 // 5
        least, fewer = of_kind.least(users)
        gone = np.zeros(len(of_kind.by_length), dtype=int)
        for length in rng.permuted(np.repeat(np.arange(len(gone)), of_kind.by_length))[users:]:
            gone[length] += 1
        law = np.ones(1)
        for n, row in zip(of_kind.by_length - gone, of_kind.more, strict=True):
            for _ in range(n):
                law = np.convolve(law, row)
        fixed = int(of_kind.fixed @ (of_kind.by_length - gone))
        mean = fixed + float(law @ np.arange(len(law)))

        assert law[: max(0, least - fixed)].sum() <= fewer / 2 + 1e-18
        assert least >= 0.5 * min(mean, least + 1)
    exact = arrivals_of(_LAWS["binomial"], (5, 4, 3))[0]
    assert [(0, 0.0), (2, 0.0), (10, 0.0)] == [exact.least(users) for users in (5, 7, 12)]


def test_of_dummies_in_few_lengths_the_fewest_are_counted() -> None:
    """Of 601 numbers every third is a length: two of three are padded."""
    spec = BinomialDummies(per_user=2, trials=600, extra_weight=_HALF)
    lengths = spec.lengths
    [arrived] = arrivals_of(spec, [1] * len(lengths))
    assert [lengths[0], *(after - before for before, after in itertools.pairwise(lengths))] == [
        2, *[3] * 200
    ]  # fmt: skip
    assert [2, *(length - 2 for length in lengths[1:])] == arrived.fixed.tolist()


_ARRIVED: Final = {"signed": (500, 1000, 500, 0, 0, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["signed", "od-hp", "mixdump", "puredump", "hierarchy"])
def test_a_batch_without_its_long_submissions_costs_more(protocol: str) -> None:
    """The figure is finite, larger, and what is charged; it says what it rests on."""
    task = dataclasses.replace(protocol_task(protocol), delta=1e-5, budget_delta=1e-5)
    chances = task.dummies.length_probabilities()
    short = np.arange(len(chances)) < (2 if protocol == "hierarchy" else 1)
    numbers = _ARRIVED.get(protocol) or np.rint(2000 * chances * short / chances[short].sum())
    by_length = tuple(int(number) for number in numbers)
    n_users, waived = sum(by_length), Waived(("lengths",), by_length)
    usual, stated = guarantees(task, n_users, 0), guarantees(task, n_users, 0, waived)
    released = charged_release(task, n_users, 0, waived)

    assert claimed(usual).epsilon < claimed(stated).epsilon < math.inf
    assert released.epsilon(task.delta) == claimed(stated).epsilon
    assert NOBODY_DROPS in claimed(usual).assumptions
    assert BY_LENGTH in claimed(stated).assumptions
    assert claimed(stated).epsilon < guarantees(task, n_users, 3, waived)[0].epsilon


@pytest.mark.slow
def test_the_counts_of_two_items_are_no_better_than_stated() -> None:
    """`signed` without long rooms: at the ε of the task's distribution, δ is 870 times as large."""
    task, by_length = protocol_task("signed"), (250, 500, 250, 0, 0, 0)
    usual = claimed(guarantees(task, 1000, 0)).epsilon
    rooms, filled = 1000, 0.5 / 30
    numbers = np.arange(60)
    logs = np.array([math.lgamma(n + 1) for n in range(rooms + 1)])
    plus, minus = np.meshgrid(numbers, numbers, indexing="ij")
    rest = rooms - plus - minus
    without = np.exp(
        logs[rooms] - logs[plus] - logs[minus] - logs[rest]
        + plus * math.log(filled * 20 / 26) + minus * math.log(filled * 6 / 26)
        + rest * math.log1p(-filled)
    )  # fmt: skip
    with_one = np.vstack([np.zeros(60), without[:-1]])

    def delta(epsilon: float) -> float:
        both = np.multiply.outer(with_one.ravel(), without.ravel())
        return float(np.maximum(both - math.exp(epsilon) * both.T, 0.0).sum())

    release = charged_release(task, 1000, 0, Waived(("lengths",), by_length))
    assert 8.5e-4 < delta(usual) < 8.8e-4
    for epsilon in (usual, 1.6, 3.0):
        assert delta(epsilon) <= release.delta(epsilon) <= 4 * delta(epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ITEM_PROTOCOLS)
@pytest.mark.parametrize("check", WAIVABLE)
def test_no_guarantee_keeps_what_a_waived_check_was_for(protocol: str, check: CheckName) -> None:
    """Nor a claim of a paper; and no figure gets smaller."""
    task = protocol_task(protocol)
    by_length = np.random.default_rng(3).multinomial(1000, task.dummies.length_probabilities())
    numbers = tuple(by_length.tolist()) if check == "lengths" else ()
    waived = Waived((check,), numbers) if len(by_length) > 1 or not numbers else NONE_WAIVED
    usual = {row.coalition: row for row in guarantees(task, 1000, 7)}
    stated = guarantees(task, 1000, 7, waived)

    gone = {text for name in waived.checks for text in WAIVABLE[name].removes}
    assert not gone & {text for row in stated for text in row.assumptions}
    if check != "lengths":
        assert all(row.epsilon >= usual[row.coalition].epsilon for row in stated)


def test_without_an_honest_shuffler_the_own_device_is_left() -> None:
    """Local noise, or many fixed dummies of one's own."""
    waived = Waived(("sentinels",))
    noisy, bare = protocol_task("od-hp"), protocol_task("puredump", dummies_per_user=1000.0)
    alone = claimed(guarantees(bare, 1000, 0, waived))

    assert noisy.local_epsilon == claimed(guarantees(noisy, 1000, 0, waived)).epsilon
    assert math.inf == claimed(guarantees(protocol_task("sageo"), 1000, 0, waived)).epsilon
    assert charged_release(bare, 1000, 0, waived).epsilon(bare.delta) == alone.epsilon < math.inf


def test_a_refused_report_may_have_been_of_any_room() -> None:
    """The distribution's rooms, less one for each: for 40 of 1,000 users, more than 40 users."""
    task, waived = protocol_task("signed"), Waived(("refusals",))
    usual, stated = (charged_release(task, 1000, 40, each) for each in (NONE_WAIVED, waived))

    assert usual.epsilon(1e-6) < stated.epsilon(1e-6) < math.inf


@pytest.mark.parametrize("text", ["", "sentinels", "lengths 970 30", "lengths refusals 5 0 2"])
def test_waived_checks_are_read_as_they_are_written(text: str) -> None:
    """Names in one order, then numbers."""
    assert text == str(Waived.parse(text))


@pytest.mark.parametrize(
    "text", ["lengths", "970", "sentinels 970 3", "lengths 09", "lengths 9 ", f"lengths {10**15}"]
)
def test_other_texts_are_no_waived_checks(text: str) -> None:
    """Numbers belong to the check of lengths alone."""
    with pytest.raises(WireError, match=r"not a list of checks|numbers by length"):
        Waived.parse(text)


def test_another_tasks_lengths_are_refused() -> None:
    """The message has both numbers of lengths."""
    with pytest.raises(AccountingError, match="3 lengths arrived; the task has 2"):
        guarantees(protocol_task("puredump"), 1000, 0, Waived(("lengths",), (1, 2, 997)))
    assert () == arrivals_of(dataclasses.replace(NO_DUMMIES), ())[1:]
