import numpy as np
import pytest
from scipy import stats

from common.task.dummy_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from shuffler import item_dummies
from shuffler.item_dummies import draw_item_dummies, draw_kept
from tests.support.mechanisms import Scripted

_FLANKED = ShufflerSpec(
    law="geometric", peak=6, left_weight=RATIO_SUM * 3 // 4, right_weight=RATIO_SUM // 2, most=40
)


_SKEWED = ShufflerSpec(
    law="geometric", peak=2, left_weight=RATIO_SUM // 3, right_weight=RATIO_SUM * 9 // 10, most=5
)


_FROM_ZERO = ShufflerSpec(
    law="geometric", left_weight=RATIO_SUM // 3, right_weight=RATIO_SUM * 9 // 10, most=60
)


@pytest.mark.parametrize(
    "spec",
    [
        *(_FLANKED, _SKEWED, _FROM_ZERO),
        *(ShufflerSpec(law="binomial", trials=coins, most=coins) for coins in (1, 5, 64, 100, 129)),
    ],
    ids=str,
)
def test_dummies_have_the_stated_distribution(spec: ShufflerSpec) -> None:
    """300,000 draws agree by chi-square; cells of fewer than ten expected draws are pooled."""
    # Seed 1; fails by chance with probability 1e-7 for each.
    drawn = draw_item_dummies(spec, 300_000, np.random.default_rng(1))
    coins = stats.binom.pmf(np.arange(spec.most + 1), spec.trials, 0.5)
    distribution = coins if spec.law == "binomial" else spec.probabilities()
    expected = distribution * len(drawn)
    counts = np.bincount(drawn, minlength=len(expected))
    rare = expected < 10
    pooled = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    used = wanted > 0
    distance = float(((pooled - wanted)[used] ** 2 / wanted[used]).sum())

    assert drawn.max() <= spec.most
    assert stats.chi2.sf(distance, used.sum() - 1) > 1e-7


def test_items_drawn_in_different_parts_are_independent() -> None:
    """A million items at 400 coins are drawn in parts; no part repeats another."""
    spec = ShufflerSpec(law="binomial", trials=400, most=400)
    drawn = draw_item_dummies(spec, 1_000_000, np.random.default_rng(5))
    together = item_dummies._WORDS_AT_ONCE // 7
    first, second = drawn[:together] - 200, drawn[together:][:together] - 200
    correlation = float((first[: len(second)] * second).mean()) / 100

    assert len(second) > 100_000
    assert abs(correlation) < 6 / np.sqrt(len(second))


@pytest.mark.parametrize("spec", [_FLANKED, ShufflerSpec(law="binomial", trials=9, most=9)])
def test_numbers_of_dummies_are_independent_between_items(spec: ShufflerSpec) -> None:
    """No two items' numbers correlate. Seed 6; fails by chance with probability below 1e-7."""
    rng = np.random.default_rng(6)
    drawn = np.array([draw_item_dummies(spec, 6, rng) for _ in range(2000)])
    together = np.corrcoef(drawn.T)[np.triu_indices(6, 1)]

    assert np.abs(together).max() < 6 / np.sqrt(2000)


def test_a_report_is_kept_if_its_integer_is_below_the_weight() -> None:
    """The boundary is not kept."""
    kept = draw_kept(ShufflerSpec(keep_weight=7), 4, Scripted([0, 6, 7, 2**32 - 1]))

    assert [True, True, False, False] == kept.tolist()


def test_nothing_is_drawn_where_nothing_is_dropped_or_added() -> None:
    """The generator's state does not change."""
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state

    assert draw_kept(ShufflerSpec(keep_weight=KEEP_SUM), 5, rng).all()
    assert [0, 0, 0] == draw_item_dummies(ShufflerSpec(), 3, rng).tolist()
    assert before == rng.bit_generator.state
