import math
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from common.mechanisms.registry import mechanism_of
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from tests.support.mechanisms import Scripted, example
from tests.support.tasks import published
from user_agent.contribution import draw_dummies, draw_dummy_counts

_QUARTER: Final = EXTRA_WEIGHT_SUM // 4
_RUNS: Final = 200_000
_CHANCE: Final = 1e-7
"""Of a false alarm over seeds."""


def _law(law: str, **fields: Any) -> DummySpec:
    wanted: dict[str, Any] = {"per_user": 0, "extra_weight": _QUARTER}
    return DummySpec(law=law, **wanted | fields)  # type: ignore[arg-type]


def _agrees(counts: NDArray[np.int64], law: NDArray[np.float64]) -> bool:
    """Chi-square; cells of fewer than ten expected draws are pooled."""
    expected = law * counts.sum()
    rare = expected < 10
    seen, wanted = counts[~rare], expected[~rare]
    if rare.any():
        seen = np.append(seen, counts[rare].sum())
        wanted = np.append(wanted, expected[rare].sum())
    kept = wanted > 0
    distance = float(((seen - wanted)[kept] ** 2 / wanted[kept]).sum())
    return bool(stats.chi2.sf(distance, kept.sum() - 1) > _CHANCE)


def test_each_trial_of_a_binomial_number_is_decided_by_its_weight() -> None:
    """Below it a trial succeeds, at it not; three trials of two users."""
    law = _law("binomial", per_user=1, trials=3, most=3, extra_weight=7)
    rng = Scripted([6, 7], [0, EXTRA_WEIGHT_SUM - 1], [7, 6])

    assert [3, 2] == draw_dummy_counts(law, 2, rng).tolist()


def test_geometric_numbers_continue_while_trials_succeed() -> None:
    """Two users with two each: 2 + 0 and 0 + 1; a number that has ended draws no more."""
    law = _law("negative-binomial", per_user=1, trials=2, most=9, extra_weight=7)
    rng = Scripted([6, 7, 7, 0], [6, 7], [7])

    assert [3, 2] == draw_dummy_counts(law, 2, rng).tolist()


def test_a_number_above_the_maximum_is_drawn_again() -> None:
    """It is not truncated; only that user's number is drawn again."""
    law = _law("negative-binomial", trials=1, most=1, extra_weight=7)
    rng = Scripted([0, 0], [0, 9], [9], [9])

    assert [0, 1] == draw_dummy_counts(law, 2, rng).tolist()


def test_a_dummy_of_an_item_is_decided_by_its_weight() -> None:
    """Items whose draw is below it; above the maximum all are drawn again."""
    law = _law("each-item", trials=6, most=2, extra_weight=7)
    grr = mechanism_of(_aue(most=6).task)
    rng = Scripted([0, 0, 0, 7, 7, 7], [7, 6, 9, 9, 0, 8])
    drawn = draw_dummies(grr, law, rng)

    assert [1, 4] == drawn["item"].tolist()


@pytest.mark.parametrize(
    ("law", "shape", "most", "wanted"),
    [
        ("binomial", 6, 6, stats.binom.pmf(np.arange(7), 6, 0.25)),
        *(
            ("negative-binomial", 3, most, stats.nbinom.pmf(np.arange(most + 1), 3, 0.75))
            for most in (2, 5, 40)
        ),
    ],
)
def test_drawn_numbers_have_the_accounted_distribution(
    law: str, shape: int, most: int, wanted: NDArray[np.float64]
) -> None:
    """Conditioned on at most `most`. Seed 2; fails by chance with probability 1e-7."""
    drawn = draw_dummy_counts(_law(law, trials=shape, most=most, per_user=1), _RUNS, _rng(2)) - 1

    assert drawn.max() <= most
    assert _agrees(np.bincount(drawn, minlength=most + 1), wanted / wanted.sum())


def test_sets_of_item_dummies_have_the_accounted_distribution() -> None:
    """Of four items, at most two. Seed 3; fails by chance with probability 1e-7."""
    law, rng = _law("each-item", trials=4, most=2), np.random.default_rng(3)
    mechanism = mechanism_of(_aue(domain_size=4, most=2).task)
    counts = np.zeros(16, dtype=np.int64)
    for _ in range(20_000):
        items = draw_dummies(mechanism, law, rng)["item"]
        counts[int((1 << items.astype(np.int64)).sum())] += 1
    sizes = np.bitwise_count(np.arange(16)).astype(np.float64)
    wanted = np.where(sizes <= 2, 0.25**sizes * 0.75 ** (4 - sizes), 0.0)

    assert 0 == counts[sizes > 2].sum()
    assert _agrees(counts, wanted / wanted.sum())


def test_uniform_dummies_are_uniform_over_items() -> None:
    """Seed 4; chi-square, fails by chance with probability 1e-7."""
    law, mechanism, rng = _law("binomial", trials=6, most=6), example("grr"), _rng(4)
    dummies = np.concatenate([draw_dummies(mechanism, law, rng) for _ in range(10_000)])

    assert _agrees(mechanism.tally(dummies), np.full(6, 1 / 6))


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _aue(*, domain_size: int = 6, most: int) -> Any:
    return published(
        protocol="aue",
        domain_size=domain_size,
        buckets=0,
        dummies_per_user=0,
        local_epsilon=math.inf,
        dummies=_law("each-item", trials=domain_size, most=most),
        delta=0.3,
        n_min=100,
        target_size=100,
    )
