"""Whether means, shares and counts of bits are right, and as precise as they say."""

from collections.abc import Callable
from typing import Final, cast

import numpy as np

from analyzer.estimation.dispatch import estimate_of
from common.mechanisms.base import Mixture, Reports, Vector
from common.mechanisms.numeric.multi_rphm import projection
from common.mechanisms.registry import number_mechanism_of, randomizer_of
from common.messages.estimate import BitTable, KeyValues, Means
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.value_reports import (
    FEW_CORNERS,
    draw,
    law_of_one,
    name_of,
    numbers_of,
    set_bits,
    stand_for,
)
from deploy.audit.finding import Outcome
from deploy.audit.laws.kind_panel import kind_panel
from deploy.audit.laws.kind_values import usual_values
from deploy.audit.laws.value_laws import to_unit

_USERS: Final = 60_000
_MOST_NUMBERS: Final = 4_000_000
"""Of all people of a collection together."""
_LEAST_OF_KEY: Final = 50
_TEXTS: Final = 4_000
_FEW: Final = 2_000
"""People of a small collection, of which many are made."""
_COLLECTIONS: Final = 30
_HELD: Final = 0.7
"""Share of the people who hold the first value; the others hold the second."""
_NUMBERS: Final = 12
"""Of a vector, or keys, that are looked at one by one."""
_EXACT: Final = 1e-9
_LOOSE: Final = 1.1
"""Of squared standard errors on average: they are estimated from reports."""


def play_value_estimates(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Collect by the deployed code, without sealing, and compare with the truth and its law."""
    checks = Checks()
    own = (audited.task,) if audited.task.kind != "categorical" else ()
    for task in (*own, *kind_panel()):
        if task.kind == "string":
            _check_bits(checks, task, rng)
        elif task.kind == "key-value":
            _check_pairs(checks, task, rng)
        elif task.mechanism.name != "mean-est" or task.domain_size <= FEW_CORNERS:
            _check_means(checks, task, rng)
    finding = checks.finding(
        scenario="kind-estimates",
        title="Means, shares and counts of bits are estimated without bias",
        heading="correctness",
        sentence="Means are right on average and off by as much as is stated; shares of owners, "
        "their means with what fakes add, and counts of bits are what their formulas give.",
        trials=_USERS,
        advice="Believe no result of this version that is not about items.",
    )
    return Outcome(findings=(finding,))


def _collected(task: Task, users: int, rng: np.random.Generator) -> tuple[Reports, int]:
    """Give reports of people of two values, and how many hold the first."""
    first = int(_HELD * users)
    one, other = usual_values(task)
    drawn = [draw(task, one, first, rng), draw(task, other, users - first, rng)]
    return np.concatenate(drawn), first


def _check_means(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    name, spec = name_of(task), spec_as(task.mechanism, NumberSpec)
    mechanism, half = number_mechanism_of(task), (spec.high - spec.low) / 2
    users = max(_FEW, min(_USERS, _MOST_NUMBERS // task.domain_size))
    people = [numbers_of(task, value) for value in usual_values(task)]
    laws = [law_of_one(task, numbers) for numbers in people]
    back = np.eye(len(people[0]))
    if spec.projected:
        back = projection(task.nonce, task.domain_size, spec.projected)
        # Columns of length 1, at right angles: what is mapped there and back stays.
        checks.must(f"{name}: a projection", np.allclose(back.T @ back, np.eye(back.shape[1])))

    def estimated(reports: Reports) -> Means:
        cells = mechanism.tally(reports)
        found = estimate_of(task, mechanism, cells, Mixture(n_real=float(len(reports))))
        return cast("Means", found)

    reports, first = _collected(task, users, rng)
    shares = np.array([first, users - first]) / users
    truth = shares @ np.array(people)
    said = stand_for(task, reports).mean(axis=0)
    found = (estimated(reports).means - spec.low) / half - 1
    checks.must(
        f"{name}: means follow from reports", np.allclose(found, back @ said, atol=_EXACT * 10)
    )
    variance = shares @ np.array([law[0] for law in laws])
    steps = laws[0][1]
    for number, mean in enumerate(said[:_NUMBERS]):
        total, spread = users * float(mean - truth[number]), np.sqrt(users * variance[number])
        p_value = fit.of_sum(total, 0.0, float(spread), float(steps[number]))
        checks.test(f"{name}: means without bias", p_value)
    if spec.projected:
        checks.must(f"{name}: says that it is biased", not estimated(reports).unbiased)
        return
    exact = variance / users
    held = np.repeat(np.array(people), [first, users - first], axis=0)
    stated = mechanism.variance(held)
    checks.must(f"{name}: the exact variance", np.allclose(stated, exact, rtol=1e-6))
    _check_errors(checks, task, estimated, (truth, variance), rng)


def _check_errors(
    checks: Checks,
    task: Task,
    estimated: Callable[[Reports], Means],
    law: tuple[Vector, Vector],
    rng: np.random.Generator,
) -> None:
    """Compare how far small collections are off, and say that they are, with their law."""
    name, spec = name_of(task), spec_as(task.mechanism, NumberSpec)
    half, (truth, variance) = (spec.high - spec.low) / 2, law
    off, stated = [], []
    for _ in range(_COLLECTIONS):
        found = estimated(_collected(task, _FEW, rng)[0])
        wrong = (found.means - spec.low) / half - 1 - truth
        off.append(float(wrong[0] / np.sqrt(variance[0] / _FEW)))
        stated.append((found.standard_errors / half) ** 2 / (variance / _FEW))
    checks.test(f"{name}: how far means are off", fit.of_squares(off))
    # Where answers tell nothing of the square, people's differences are counted as noise too.
    mean, more = float(np.mean(stated)), float((1 / variance).max())
    checks.must(
        f"{name}: standard errors as their law says", 1 / _LOOSE < mean < _LOOSE * (1 + more)
    )


def _check_pairs(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Compare shares and means with the formulas of [YHMZ19], worked out from reports."""
    name, spec = name_of(task), spec_as(task.mechanism, KeyValueSpec)
    reports, first = _collected(task, _USERS, rng)
    owned = cast("tuple[dict[int, float], dict[int, float]]", usual_values(task))
    shares = first / _USERS, 1 - first / _USERS
    randomizer = randomizer_of(task)
    found = cast(
        "KeyValues",
        estimate_of(task, randomizer, randomizer.tally(reports), Mixture(n_real=float(_USERS))),
    )
    tells = spec.key_true_weight / (spec.key_true_weight + spec.key_other_weight)
    true, other = spec.value_true_weight, spec.value_other_weight
    signal = (true - other) / (true + other)
    owners = found.owners
    checks.must(f"{name}: owners if they are asked for", (owners is not None) == (tells > 1 / 2))
    for key in _some_keys(task):
        said = reports["said"][reports["key"] == key]
        checks.must(f"{name}: reports of each key", bool(found.reports[key] == len(said)))
        if len(said) < _LEAST_OF_KEY:
            continue  # so few that nobody may have said that it is there
        present, up = int((said > 0).sum()), int((said == 2).sum())  # noqa: PLR2004  # +
        holding = sum(share for share, own in zip(shares, owned, strict=True) if key in own)
        fake = to_unit(spec.fakes[key], spec.low, spec.high) if spec.fakes else 0.0
        mean = float(np.clip((2 * up / present - 1) / signal, -1, 1))
        if owners is not None and tells > 1 / 2:
            chance = holding * tells + (1 - holding) * (1 - tells)
            checks.test(f"{name}: shares without bias", fit.of_chance(present, len(said), chance))
            share = (present / len(said) - (1 - tells)) / (2 * tells - 1)
            checks.must(
                f"{name}: shares follow from reports",
                bool(np.isclose(owners.frequencies[key], share, atol=_EXACT)),
            )
            noise = np.sqrt(tells * (1 - tells) / len(said)) / (2 * tells - 1)
            error = float(owners.frequency_errors[key])
            checks.must(f"{name}: errors of shares", 1 / 2 < error / noise < 2)  # noqa: PLR2004
            real = min(max(share, 0.0), 1.0) * tells
            faked = (1 - min(max(share, 0.0), 1.0)) * (1 - tells)
            without = np.clip((mean * (real + faked) - faked * fake) / max(real, 1e-300), -1, 1)
            unit = to_unit(float(owners.means[key]), spec.low, spec.high)
            checks.must(
                f"{name}: means of owners follow from reports",
                share <= _EXACT or bool(abs(unit - without) < _EXACT * 1000),
            )
        plus = 0.0
        for share, own in zip(shares, owned, strict=True):
            number = to_unit(own[key], spec.low, spec.high) if key in own else fake
            weight = share * (tells if key in own else 1 - tells)
            plus += weight * (1 + signal * number) / 2
        reporting = holding * tells + (1 - holding) * (1 - tells)
        checks.test(f"{name}: signs", fit.of_chance(up, present, plus / reporting))
        unit = to_unit(float(found.means_with_fakes[key]), spec.low, spec.high)
        checks.must(f"{name}: means follow from reports", abs(unit - mean) < _EXACT * 10)


def _some_keys(task: Task) -> list[int]:
    """Give keys to look at: all of a few, or some spread over many, the last among them."""
    spread = np.linspace(0, task.domain_size - 1, min(task.domain_size, _NUMBERS))
    return [int(key) for key in spread]


def _check_bits(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Compare the table of bits with reports, counted one by one; see value_games.py for laws."""
    name, spec = name_of(task), spec_as(task.mechanism, RapporSpec)
    reports, _ = _collected(task, _TEXTS, rng)
    randomizer = randomizer_of(task)
    mixture = Mixture(n_real=float(_TEXTS))
    found = cast("BitTable", estimate_of(task, randomizer, randomizer.tally(reports), mixture))
    bits, cohort = set_bits(spec, reports), reports["cohort"]
    counts = np.stack([bits[cohort == one].sum(axis=0) for one in range(spec.cohorts)])
    sizes = np.bincount(cohort, minlength=spec.cohorts)
    checks.must(f"{name}: the table counts every bit", np.array_equal(found.bit_counts, counts))
    checks.must(f"{name}: and every cohort", np.array_equal(found.cohort_sizes, sizes))
