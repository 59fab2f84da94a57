"""
Coverage of intervals for every protocol of items, from few users to many.

Each collection covers all items' shares at once with 95 % probability, and lifts an absent item
above 0 with 5 %. The limits on the numbers of collections that miss are exceeded by a binomial
number with this chance with probability below 1e-7 over seeds, in each case.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.result import simultaneous_confidence
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.distribution import Distribution
from shuffledp.lab.planning.item_dummies import least_geometric
from shuffledp.lab.simulate.collection import collect, estimate_histogram
from tests.support.chains import chain
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.reductions import geometric_noise
from tests.support.results import released
from tests.support.tasks import published

_SLOW: Final = ("ldp-olh-strings",)
_FALSE_ALARM: Final = 1e-7


def _most(runs: int, chance: float) -> int:
    """Return the number of misses that chance exceeds with probability below 1e-7."""
    return int(stats.binom.isf(_FALSE_ALARM, runs, chance))


def _shapes(size: int, n_users: int) -> Iterator[NDArray[np.int64]]:
    """Yield everybody at the first item, one person apart from everybody else, and skewed users."""
    first, apart = np.zeros((2, size), dtype=np.int64)
    first[0] = n_users
    apart[size // 2], apart[0] = n_users - 1, 1
    skewed = 1 / np.arange(1, size + 1) ** 1.5
    yield first
    yield apart
    yield np.random.default_rng(1).multinomial(n_users, skewed / skewed.sum())


def _check(task: Task, n_users: int, runs: int) -> None:
    mechanism, rng, size = mechanism_of(task), np.random.default_rng(7), task.domain_size
    for users in _shapes(size, n_users):
        truth, missed, false, single = users / n_users, 0, 0, np.zeros(size)
        for _ in range(runs):
            counts = collect(task, mechanism, users, rng, one_by_one=False)
            found, _ = estimate_histogram(task, mechanism, counts, n_users)
            low, high = found.interval(simultaneous_confidence(0.95, size))
            missed += int(((truth < low - 1e-9) | (truth > high + 1e-9)).any())
            false += int((low[truth == 0] > 1e-9).any())
            low, high = found.interval(0.95)
            single += (truth < low - 1e-9) | (truth > high + 1e-9)

        assert missed <= _most(runs, 0.05)
        assert false <= _most(runs, 0.05)
        assert single.max() <= _most(runs, 0.05)
        assert found.frequencies.sum() == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sageo", "sh", "ldp-sw"])
def test_intervals_cover_all_shares_of_few_users(name: str) -> None:
    """Of 50 users, by the protocols whose normal intervals missed most."""
    changes = {"local_epsilon": 5.0} if name == "sh" else {}
    _check(protocol_task(name, **changes), n_users=50, runs=300)


@pytest.mark.slow
def test_intervals_count_the_noise_of_both_shufflers() -> None:
    """Of 50 users, whose reports two unlike noises hide."""
    noises = geometric_noise(20, 0.5, 0.5, 60), geometric_noise(70, 0.9, 0.25, 90)
    fields = chain(*noises) | {"domain_size": 30, "delta": 1e-3}
    _check(published(**fields).task, n_users=50, runs=300)


@pytest.mark.slow
@pytest.mark.parametrize(("central", "coalition"), [(1.0, 1.157), (0.1, 0.1202)])
def test_the_error_with_two_shufflers_is_that_of_theory(central: float, coalition: float) -> None:
    """
    Over 200 batches of 915 items, the mean squared error is within 5 % of the stated one.

    So is the error of each item's count within 5 % of the variance of both noises. Seed 11; the
    noise's kurtosis is below 6, so 5 % are nine standard deviations: fails by chance with
    probability below 1e-9 over seeds.
    """
    noise = least_geometric(coalition, 1e-6)
    task = published(**chain(noise), domain_size=915, budget_epsilon=2.0).task
    mechanism, rng = mechanism_of(task), np.random.default_rng(11)
    users = rng.multinomial(20_000, np.full(915, 1 / 915))
    errors, stated, counted = [], [], []
    for _ in range(200):
        counts = collect(task, mechanism, users, rng, one_by_one=False)
        found, mixture = estimate_histogram(task, mechanism, counts, 20_000)
        errors.append(((found.frequencies - users / 20_000) ** 2).mean())
        stated.append(found.mse_theory)
        counted.append(((counts.cells - users - mixture.item_mean) ** 2).mean())

    assert central == pytest.approx(task.central_epsilon, rel=2e-3)
    assert float(np.mean(stated)) == pytest.approx(float(np.mean(errors)), rel=0.05)
    assert task.shuffler.noises[0].moments()[1] == pytest.approx(float(np.mean(counted)), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("local_epsilon", "held"), [(2.0, [0]), (2.0, [29]), (6.0, range(30))])
def test_each_interval_of_a_square_wave_covers(local_epsilon: float, held: Sequence[int]) -> None:
    """Of 50 users at an end of the line, or evenly; bands have 9 places and 1."""
    runs, users = 10_000, np.zeros(30, dtype=np.int64)
    np.add.at(users, np.resize(held, 50), 1)
    mechanism = mechanism_of(protocol_task("ldp-sw", local_epsilon=local_epsilon))
    mixture, rng, missed = Mixture(n_real=50), np.random.default_rng(9), np.zeros(30)
    table = mechanism.interval_table(mixture)
    for _ in range(runs):
        cells = mechanism.sample_cells(users, 0, rng)
        shares = mechanism.debias(cells, mixture)
        errors = np.sqrt(mechanism.observed_variance(cells, shares, mixture))
        low, high = table.interval(shares, errors, 0.95)
        missed += (users / 50 < low - 1e-9) | (users / 50 > high + 1e-9)

    # fails by chance with probability 1e-7 over seeds
    assert missed.max() <= _most(runs, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("n_users", [50, 400, 2_000, 200_000])
@pytest.mark.parametrize("name", [name for name in ITEM_PROTOCOLS if name not in _SLOW])
def test_intervals_of_every_protocol_cover_all_shares(name: str, n_users: int) -> None:
    """Skewed shares, one person apart from everybody else, and everybody at one item."""
    _check(protocol_task(name), n_users, runs=400)


@pytest.mark.slow
@pytest.mark.parametrize("n_users", [50, 2_000])
@pytest.mark.parametrize("name", ["ldp-sw", "ldp-grr", "ldp-olh", "sageo", "hierarchy"])
def test_quantiles_and_shares_below_edges_cover_the_truth(name: str, n_users: int) -> None:
    """With most of the users in one bucket, for each edge and quantile by itself."""
    size, runs, asked = 30, 200, [0.05, 0.25, 0.5, 0.75, 0.95]
    edges = EdgesSpec(low=0.0, high=float(size), buckets=size)
    task = protocol_task(name, domain_size=1, labels=(), edges=edges)
    mechanism, rng = mechanism_of(task), np.random.default_rng(8)
    for users in _shapes(size, n_users):
        below = np.cumsum(users / n_users)
        numbers = np.interp(asked, np.append(0.0, below), edges.edges)
        missed, quantiles = np.zeros(size - 1), np.zeros(len(asked))
        for _ in range(runs):
            counts = collect(task, mechanism, users, rng, one_by_one=False)
            found, _ = estimate_histogram(task, mechanism, counts, n_users)
            added = counts.n_reports - n_users * task.own_reports
            batch = released(
                task,
                estimate=found,
                n_users=n_users,
                n_reports=counts.n_reports,
                n_dummies=added if task.shuffler.only_permutes else 0,
                refused={"repeated": 0, "unreadable": 0, "malformed": 0},
            )
            [each] = Distribution.of_groups(found, batch, task)
            _, low, high = (part[:-1] for part in each.cumulative)
            missed += (below[:-1] < low - 1e-9) | (below[:-1] > high + 1e-9)
            _, low, high = each.quantiles(asked)
            quantiles += (numbers < low - 1e-6) | (numbers > high + 1e-6)

        # The spread of few reports' estimates is itself uncertain: single edges miss up to 10 %.
        assert missed.max() <= _most(runs, 0.1)
        assert missed.mean() <= 0.075 * runs
        assert quantiles.max() <= _most(runs, 0.09)
