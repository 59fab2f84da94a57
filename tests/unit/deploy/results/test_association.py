"""Chi-squared tests and Cramér's V of noisy tables: level, power, coverage."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.views import View
from shuffledp.common.messages.result import ShareTable
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.deploy.results.association import Association


def _falling(size: int, power: float = 1.0) -> Vector:
    weights = np.arange(1.0, size + 1) ** -power
    return np.asarray(weights / weights.sum())


def _collected(
    joint: Vector, n_users: int, density: float, rng: Generator
) -> tuple[ShareTable, list[ShareTable]]:
    """Draw people by cell, with so many uniform dummies a cell, and estimate the table alone."""
    (r, c), cells = joint.shape, joint.size
    added = rng.multinomial(round(density * cells), np.full(cells, 1 / cells)) - density
    counts = (rng.multinomial(n_users, joint.ravel()) + added).reshape(r, c)
    variances = (density * (1 - 1 / cells), density * c * (1 - 1 / r), density * r * (1 - 1 / c))
    shares = (counts.ravel(), counts.sum(axis=1), counts.sum(axis=0))
    table, *margins = (
        ShareTable(shares=each / n_users, standard_error=math.sqrt(variance) / n_users)
        for each, variance in zip(shares, variances, strict=True)
    )
    return table, margins


def _tested(joint: Vector, n_users: int, density: float, times: int) -> list[Association]:
    rng = np.random.default_rng(5)
    drawn = (_collected(joint, n_users, density, rng) for _ in range(times))
    return [Association.of(table, margins, n_users) for table, margins in drawn]


def _dependent(margin: Vector, share: float) -> Vector:
    """Return a joint distribution in which a share of people have the same value twice."""
    return (1 - share) * np.outer(margin, margin) + share * np.diag(margin)


def _rejected(found: Sequence[Association], level: float = 0.05) -> float:
    return float(np.mean([each.p_value < level for each in found]))


_SETTINGS: Final = [
    pytest.param((2, 2), 0.5, 5_000, 200.0, id="two-by-two"),
    pytest.param((3, 4), 1.0, 20_000, 3.0, id="sampling-dominates"),
    pytest.param((3, 4), 2.5, 20_000, 300.0, id="rare-values"),
    pytest.param((20, 20), 1.0, 100_000, 1600.0, id="twenty-values"),
]


@pytest.mark.parametrize(("shape", "power", "n_users", "density"), _SETTINGS)
def test_the_test_keeps_its_level(
    shape: tuple[int, int], power: float, n_users: int, density: float
) -> None:
    """Of 600 independent tables it rejects 5 %, within what chance explains."""
    joint = np.outer(*(_falling(size, power) for size in shape))
    found = _tested(joint, n_users, density, 600)

    # fails by chance with probability below 1e-6: 5.2 deviations
    assert abs(_rejected(found) - 0.05) <= 5.2 * math.sqrt(0.05 * 0.95 / 600)


def test_the_test_of_one_of_several_tables_keeps_its_level() -> None:
    """
    The estimates of three tables of three independent attributes, whose margins are averaged.

    Of 125 collections; fails by chance with probability below 1e-6: 5.2 deviations.
    """
    sizes, pairs, n_users, rng = (2, 3, 5), ((0, 1), (0, 2), (1, 2)), 5000, np.random.default_rng(5)
    views = tuple(View(size=sizes[a] * sizes[b], dummies=averaging(0.2 * 4**a)) for a, b in pairs)
    mechanism, levels = Tables(views=views, attribute_sizes=sizes, tables=pairs), []
    for _ in range(125):
        people = np.stack([rng.choice(n, n_users, p=_falling(n)) for n in sizes], axis=1)
        cells = mechanism.tally(mechanism.randomize(people, rng))
        found = mechanism.estimate(cells + mechanism.sample_dummies(n_users, rng), n_users)
        each = [
            Association.of(table, [found.attributes[a] for a in pair], n_users)
            for table, pair in zip(found.tables, pairs, strict=True)
        ]
        levels.append(_rejected(each))

    deviation = max(float(np.std(levels)), 0.1) / math.sqrt(len(levels))
    assert abs(np.mean(levels) - 0.05) <= 5.2 * deviation


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "power", "n_users", "density"), _SETTINGS)
def test_the_level_is_within_a_hundredth(
    shape: tuple[int, int], power: float, n_users: int, density: float
) -> None:
    """Of 20,000 independent tables it rejects 4 to 6 %."""
    joint = np.outer(*(_falling(size, power) for size in shape))
    found = _tested(joint, n_users, density, 20_000)

    assert 0.04 <= _rejected(found) <= 0.06  # from a level of 5.2 % by chance below 1e-6


def test_noise_inflates_the_usual_statistic() -> None:
    """Pearson's test of the same counts rejects nearly every independent table."""
    rng, joint = np.random.default_rng(5), np.outer(_falling(3), _falling(4))
    rejected = 0
    for _ in range(200):
        table, _ = _collected(joint, 20_000, 3000.0, rng)
        counts = np.maximum(table.shares.reshape(3, 4) * 20_000, 0.5)
        rejected += int(stats.chi2_contingency(counts).pvalue < 0.05)

    assert rejected > 100


def test_without_noise_it_is_pearsons() -> None:
    """Statistic, degrees of freedom and p-value are those of scipy; V is that of the shares."""
    counts = np.array([[20.0, 30.0, 10.0], [25.0, 15.0, 40.0]])
    n_users = int(counts.sum())
    cells, rows, columns = (
        ShareTable(shares=each / n_users, standard_error=0.0)
        for each in (counts.ravel(), counts.sum(axis=1), counts.sum(axis=0))
    )
    found = Association.of(cells, [rows, columns], n_users)
    pearson = stats.chi2_contingency(counts, correction=False)

    assert pearson.statistic == pytest.approx(found.statistic)
    assert 2 == pytest.approx(found.degrees)
    assert pearson.pvalue == pytest.approx(found.p_value)
    assert math.sqrt((pearson.statistic - 2) / n_users) == pytest.approx(found.cramers_v)
    assert found.interval[0] < found.cramers_v < found.interval[1]


@pytest.mark.parametrize(
    ("size", "n_users", "density", "share"),
    [(2, 5_000, 200.0, 0.3), (5, 20_000, 300.0, 0.1), (20, 100_000, 1600.0, 0.05)],
)
def test_dependence_is_found_and_measured(
    size: int, n_users: int, density: float, share: float
) -> None:
    """All tests reject, V² is unbiased, and intervals cover it."""
    margin = _falling(size)
    joint = _dependent(margin, share)
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    phi = float(((joint - expected) ** 2 / expected).sum() / (size - 1))
    found = _tested(joint, n_users, density, 300)
    squares = np.array([each.cramers_v**2 for each in found])
    ends = np.array([each.interval for each in found])
    covered = ((ends[:, 0] <= math.sqrt(phi)) & (math.sqrt(phi) <= ends[:, 1])).mean()

    assert 1 == _rejected(found, 1e-3)
    # each fails by chance with probability below 1e-6: 5 deviations; of .95, 4.9 below
    assert abs(squares.mean() - phi) <= 5 * squares.std() / math.sqrt(300)
    assert covered >= 0.95 - 4.9 * math.sqrt(0.95 * 0.05 / 300)


def test_independent_attributes_have_an_interval_from_0() -> None:
    """Of 300 tables, few have an interval above 0, and V is small."""
    found = _tested(np.outer(_falling(5), _falling(4)), 20_000, 300.0, 300)

    # fails by chance with probability below 1e-6
    assert np.mean([each.interval[0] == 0 for each in found]) >= 0.9
    assert np.mean([each.cramers_v for each in found]) < 0.02


def test_tables_lost_in_noise_say_nothing() -> None:
    """Without two frequent values of both attributes, V may be anything; p-values stay valid."""
    found = _tested(np.outer(_falling(20), _falling(20)), 200, 1600.0, 50)

    assert {(0.0, 1.0)} == {each.interval for each in found}
    assert all(0 <= each.p_value <= 1 for each in found)
    assert _rejected(found) <= 0.3
