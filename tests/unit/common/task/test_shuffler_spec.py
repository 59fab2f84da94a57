from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from scipy import signal, stats

from shuffledp.common.errors import TaskError
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.shuffler_spec import (
    KEEP_SUM,
    MAX_PER_ITEM,
    PERMUTE_ONLY,
    RATIO_SUM,
    BinomialNoise,
    GeometricNoise,
    ItemNoise,
    ShufflerSpec,
)
from shuffledp.common.task.shuffling import Shuffling
from tests.support.mechanisms import Scripted

_FLANKS: Final = GeometricNoise(
    peak=3, left_weight=RATIO_SUM // 2, right_weight=RATIO_SUM * 2 // 3, most=12
)
_NINE_COINS: Final = BinomialNoise(trials=9)


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (PERMUTE_ONLY, {"keep_weight": 0}, "keep_weight is 0"),
        (PERMUTE_ONLY, {"keep_weight": KEEP_SUM + 1}, f"keep_weight is {KEEP_SUM + 1}"),
        (PERMUTE_ONLY, {"keep_weight": True}, "keep_weight must be a whole number"),
        (_NINE_COINS, {"trials": 0}, "trials is 0; it must lie between 1"),
        (_NINE_COINS, {"trials": MAX_PER_ITEM + 1}, f"trials is {MAX_PER_ITEM + 1}"),
        (_FLANKS, {"left_weight": 0}, "left_weight is 0; it must lie between 1"),
        (_FLANKS, {"right_weight": 0}, "right_weight is 0; it must lie between 1"),
        (_FLANKS, {"right_weight": RATIO_SUM}, f"right_weight is {RATIO_SUM}"),
        (_FLANKS, {"left_weight": -1}, "left_weight is -1"),
        (_FLANKS, {"peak": -1}, "peak is -1"),
        (_FLANKS, {"peak": 13}, "peak is 13 and most is 12"),
        (_FLANKS, {"most": MAX_PER_ITEM + 1}, f"most is {MAX_PER_ITEM + 1}"),
    ],
)
def test_a_distribution_that_breaks_a_rule_cannot_exist(
    base: Any, change: dict[str, Any], message: str
) -> None:
    """The message has the rule and the number that breaks it."""
    with pytest.raises(TaskError, match=message):
        replace(base, **change)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"peak": 0},
        {"peak": 12},
        {"left_weight": 1},
        {"left_weight": RATIO_SUM - 2**21, "right_weight": RATIO_SUM - 2**21},
    ],
    ids=str,
)
def test_flanks_have_the_stated_ratios_and_moments(change: dict[str, Any]) -> None:
    """Ratios of neighbours are those of the weights; sum and moments match direct sums."""
    spec = replace(_FLANKS, **change)
    distribution, z = spec.probabilities(), np.arange(spec.most + 1)
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    steps = np.where(z[1:] <= spec.peak, 1 / left, right)
    mean = sum(float(p) * k for p, k in zip(distribution, z, strict=True))
    spread = sum(float(p) * (k - mean) ** 2 for p, k in zip(distribution, z, strict=True))

    assert 1 == pytest.approx(distribution.sum(), abs=1e-12)
    np.testing.assert_allclose(distribution[1:] / distribution[:-1], steps, rtol=1e-9)
    assert (mean, spread) == pytest.approx(spec.moments())


def test_coins_have_a_binomials_moments() -> None:
    """The moments equal direct sums."""
    spec = _NINE_COINS
    distribution = stats.binom.pmf(np.arange(10), 9, 0.5)
    mean = float(distribution @ np.arange(10))

    assert (mean, float(distribution @ (np.arange(10) - mean) ** 2)) == pytest.approx(
        spec.moments()
    )


def test_a_shuffler_without_noise_only_permutes() -> None:
    """A shuffler that drops reports or adds dummies does more."""
    assert ShufflerSpec().only_permutes
    assert not ShufflerSpec(keep_weight=KEEP_SUM - 1).only_permutes
    assert not ShufflerSpec(noise=_NINE_COINS).only_permutes
    assert (0.0, 0.0) == ShufflerSpec().noise.moments()
    assert 0.25 == ShufflerSpec(keep_weight=KEEP_SUM // 4).keep_probability


def _probabilities(noise: ItemNoise) -> Any:
    if isinstance(noise, GeometricNoise):
        return noise.probabilities()
    return stats.binom.pmf(np.arange(noise.most + 1), noise.most, 0.5)


@pytest.mark.parametrize("sent", [0, 1, 40])
@pytest.mark.parametrize(
    "spec",
    [
        ShufflerSpec(noise=_NINE_COINS, keep_weight=KEEP_SUM // 1000),
        ShufflerSpec(noise=BinomialNoise(trials=2000)),
        ShufflerSpec(noise=replace(_FLANKS, right_weight=RATIO_SUM * 199 // 200, most=20000)),
    ],
)
def test_an_honest_batch_is_within_the_bounds(spec: ShufflerSpec, sent: int) -> None:
    """Except with probability 1e-12, by the exact distribution; the bounds are nearly tight."""
    n_kept = stats.binom.pmf(np.arange(sent + 1), sent, spec.keep_probability)
    n_dummies = _probabilities(spec.noise)
    for domain_size in (1, 3):
        n_reports = n_kept
        for _ in range(domain_size):
            n_reports = signal.convolve(n_reports, n_dummies, method="direct")
        views = Shuffling(
            keep_weight=spec.keep_weight,
            sizes=(1,) * domain_size,
            noises=(spec.noise,) * domain_size,
        )
        minimum, maximum = views.batch_reports(sent)

        assert n_reports[:minimum].sum() + n_reports[maximum + 1 :].sum() <= 1e-12
        below, above = np.cumsum(n_reports), np.cumsum(n_reports[::-1])[::-1]
        exact = np.flatnonzero(above > 5e-13)[-1] - np.flatnonzero(below > 5e-13)[0]
        assert maximum - minimum <= 1.2 * exact + 4


_FLANKED = ShufflerSpec(
    noise=GeometricNoise(
        peak=6, left_weight=RATIO_SUM * 3 // 4, right_weight=RATIO_SUM // 2, most=40
    )
)


_SKEWED = ShufflerSpec(
    noise=GeometricNoise(
        peak=2, left_weight=RATIO_SUM // 3, right_weight=RATIO_SUM * 9 // 10, most=5
    )
)


_FROM_ZERO = ShufflerSpec(
    noise=GeometricNoise(left_weight=RATIO_SUM // 3, right_weight=RATIO_SUM * 9 // 10, most=60)
)


@pytest.mark.parametrize(
    "spec",
    [
        *(_FLANKED, _SKEWED, _FROM_ZERO),
        *(ShufflerSpec(noise=BinomialNoise(trials=coins)) for coins in (1, 5, 64, 100, 129)),
    ],
    ids=str,
)
def test_dummies_have_the_stated_distribution(spec: ShufflerSpec) -> None:
    """300,000 draws agree by chi-square; cells of fewer than ten expected draws are pooled."""
    # Seed 1; fails by chance with probability 1e-7 for each.
    drawn = spec.draw_item_dummies(300_000, np.random.default_rng(1))
    expected = _probabilities(spec.noise) * len(drawn)
    counts = np.bincount(drawn, minlength=len(expected))
    rare = expected < 10
    pooled = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    used = wanted > 0
    distance = float(((pooled - wanted)[used] ** 2 / wanted[used]).sum())

    assert drawn.max() <= spec.noise.most
    assert stats.chi2.sf(distance, used.sum() - 1) > 1e-7


def test_items_drawn_in_different_parts_are_independent() -> None:
    """A million items at 400 coins are drawn in parts; no part repeats another."""
    spec = ShufflerSpec(noise=BinomialNoise(trials=400))
    drawn = spec.draw_item_dummies(1_000_000, np.random.default_rng(5))
    together = shuffler_spec._WORDS_AT_ONCE // 7
    first, second = drawn[:together] - 200, drawn[together:][:together] - 200
    correlation = float((first[: len(second)] * second).mean()) / 100

    assert len(second) > 100_000
    assert abs(correlation) < 6 / np.sqrt(len(second))


@pytest.mark.parametrize("spec", [_FLANKED, ShufflerSpec(noise=BinomialNoise(trials=9))])
def test_numbers_of_dummies_are_independent_between_items(spec: ShufflerSpec) -> None:
    """No two items' numbers correlate. Seed 6; fails by chance with probability below 1e-7."""
    rng = np.random.default_rng(6)
    drawn = np.array([spec.draw_item_dummies(6, rng) for _ in range(2000)])
    together = np.corrcoef(drawn.T)[np.triu_indices(6, 1)]

    assert np.abs(together).max() < 6 / np.sqrt(2000)


def test_a_report_is_kept_if_its_integer_is_below_the_weight() -> None:
    """The boundary is not kept."""
    kept = ShufflerSpec(keep_weight=7).draw_kept(4, Scripted([0, 6, 7, 2**32 - 1]))

    assert [True, True, False, False] == kept.tolist()


def test_nothing_is_drawn_where_nothing_is_dropped_or_added() -> None:
    """The generator's state does not change."""
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state

    assert ShufflerSpec(keep_weight=KEEP_SUM).draw_kept(5, rng).all()
    assert [0, 0, 0] == ShufflerSpec().draw_item_dummies(3, rng).tolist()
    assert before == rng.bit_generator.state
