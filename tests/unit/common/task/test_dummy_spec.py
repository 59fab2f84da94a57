import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from scipy import signal, stats

from common.errors import TaskError
from common.task.dummy_spec import (
    EXTRA_WEIGHT_SUM,
    KEEP_SUM,
    MAX_DUMMIES,
    MAX_PER_ITEM,
    RATIO_SUM,
    DummySpec,
    ShufflerSpec,
)


@pytest.mark.parametrize(
    ("mean", "distribution", "certain", "extra", "maximum"),
    [
        (0.0, "fixed", 0, 0, 0),
        (3.0, "fixed", 3, 0, 3),
        (0.5, "fractional", 0, 2**31, 1),
        (1.3, "fractional", 1, 1288490189, 2),
        (2.0**-32, "fractional", 0, 1, 1),
        (1 - 2.0**-32, "fractional", 0, 2**32 - 1, 1),
        (1 - 2.0**-40, "fixed", 1, 0, 1),
        (2.0**-40, "fixed", 0, 0, 0),
    ],
)
def test_a_mean_becomes_a_certain_number_and_a_chance_of_one_more(
    mean: float, distribution: str, certain: int, extra: int, maximum: int
) -> None:
    """The fraction is rounded to 2^-32; a mean that is negative or too large is refused."""
    spec = DummySpec.averaging(mean)

    assert (distribution, certain, extra) == (spec.law, spec.per_user, spec.extra_weight)
    assert maximum == spec.maximum
    assert abs(spec.expected_per_user - mean) <= 0.5 / EXTRA_WEIGHT_SUM
    for wrong in (-0.1, math.nan, math.inf, MAX_DUMMIES + 0.5):
        with pytest.raises(TaskError, match="dummies_per_user is"):
            DummySpec.averaging(wrong)


_DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"per_user": 1, "extra_weight": 0},
    "fractional": {"trials": 1, "most": 1},
    "binomial": {"trials": 5, "most": 5},
    "negative-binomial": {"trials": 3, "most": 60},
    "each-item": {"trials": 8, "most": 4},
}


def _distribution(of: str, **changes: Any) -> DummySpec:
    fields: dict[str, Any] = {
        "law": of,
        "per_user": 0 if of == "each-item" else 2,
        "extra_weight": EXTRA_WEIGHT_SUM // 4,
    }
    return DummySpec(**fields | _DISTRIBUTIONS[of] | changes)


@pytest.mark.parametrize(
    ("distribution", "change", "message"),
    [
        ("fixed", {"extra_weight": 1}, "extra_weight is 1 for the distribution fixed"),
        ("fixed", {"extra_weight": -1}, "extra_weight is -1"),
        ("fixed", {"per_user": -1}, "per_user is -1"),
        ("fixed", {"law": "poisson"}, "distribution of the dummies must be one of: fixed"),
        ("fixed", {"trials": 1, "most": 1}, "trials is 1 for the distribution fixed"),
        ("fractional", {"extra_weight": 0}, "extra_weight is 0 for the distribution fractional"),
        ("fractional", {"extra_weight": 2**32}, "extra_weight is 4294967296"),
        ("fractional", {"extra_weight": True}, "extra_weight must be a whole number"),
        ("fractional", {"trials": 2, "most": 2}, "trials is 2 for the distribution fractional"),
        ("fractional", {"most": 2}, "most is 2 and trials is 1; they must be equal for"),
        ("binomial", {"trials": 1, "most": 1}, "trials is 1 for the distribution binomial"),
        ("binomial", {"most": 4}, "most is 4 and trials is 5"),
        ("binomial", {"extra_weight": 0}, "extra_weight is 0 for the distribution binomial"),
        ("negative-binomial", {"trials": 0}, "trials is 0 for the distribution negative-binomial"),
        ("negative-binomial", {"most": 0}, "most is 0; it must be at least 1"),
        ("negative-binomial", {"most": MAX_DUMMIES - 1}, f"most is {MAX_DUMMIES - 1}"),
        ("each-item", {"trials": 0}, "trials is 0 for the distribution each-item"),
        ("each-item", {"trials": 16 * MAX_DUMMIES + 1}, f"trials is {16 * MAX_DUMMIES + 1}"),
    ],
)
def test_each_distribution_has_the_numbers_that_it_needs(
    distribution: str, change: dict[str, Any], message: str
) -> None:
    """No other combination of distribution, weight, trials and maximum exists."""
    _distribution(distribution)
    with pytest.raises(TaskError, match=message):
        _distribution(distribution, **change)


@pytest.mark.parametrize(
    ("distribution", "mean", "maximum", "uniform"),
    [
        ("fractional", 2.25, 3, True),
        ("binomial", 3.25, 7, True),
        ("negative-binomial", 3.0, 62, True),
        ("each-item", 2.0, 4, False),
    ],
)
def test_a_mean_is_the_direct_sum(
    distribution: str, mean: float, maximum: int, *, uniform: bool
) -> None:
    """The probability is 1/4; the negative binomial's truncated part is negligible here."""
    spec = _distribution(distribution)
    chance, trials = 0.25, spec.trials
    if distribution == "negative-binomial":
        summed = sum(
            k * math.comb(k + trials - 1, k) * chance**k * (1 - chance) ** trials
            for k in range(spec.most + 1)
        )
    else:
        summed = sum(
            k * math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
            for k in range(trials + 1)
        )

    assert (mean, maximum, uniform) == (spec.expected_per_user, spec.maximum, spec.uniform)
    assert mean == pytest.approx(spec.per_user + summed, rel=1e-12)
    assert (distribution in {"fractional", "binomial"}) == spec.bounded


@pytest.mark.parametrize(
    ("distribution", "changes", "wanted"),
    [
        ("fixed", {}, [1.0]),
        ("fractional", {}, [0.75, 0.25]),
        ("binomial", {}, stats.binom.pmf(range(6), 5, 0.25)),
        ("negative-binomial", {}, stats.nbinom.pmf(range(61), 3, 0.75)),
        ("negative-binomial", {"most": 2}, stats.nbinom.pmf(range(3), 3, 0.75)),
        ("each-item", {}, [1.0]),
        ("binomial", {"trials": 600, "most": 600}, stats.binom.pmf(range(601), 600, 0.25)),
        ("negative-binomial", {"trials": 99, "most": 500}, stats.nbinom.pmf(range(501), 99, 0.75)),
    ],
)
def test_lengths_show_the_number_of_uniform_dummies(
    distribution: str, changes: dict[str, Any], wanted: Sequence[float]
) -> None:
    """At most 256 lengths; a number between two of them is padded to the next."""
    spec = _distribution(distribution, **changes)
    summed = np.cumsum(wanted) / np.sum(wanted)
    ends = np.array(spec.lengths) - spec.per_user

    assert spec.maximum == spec.lengths[-1]
    assert len(wanted) == len(ends) or len(wanted) > 256 > len(ends) or not spec.uniform
    if spec.uniform:
        expected = np.diff(summed[ends], prepend=0.0)
        np.testing.assert_allclose(spec.length_probabilities(), expected, rtol=1e-10, atol=1e-15)


def test_a_task_may_pad_a_random_number_to_one_length() -> None:
    """Only where there is a choice."""
    spec = _distribution("binomial", trials=9, most=9, one_length=True)

    assert ((spec.maximum,), [1.0]) == (spec.lengths, spec.length_probabilities().tolist())
    with pytest.raises(TaskError, match="one_length is true for the distribution fixed"):
        DummySpec(law="fixed", per_user=1, one_length=True)


_COINS: Final[dict[str, Any]] = {"law": "binomial", "trials": 9, "most": 9}
_FLANKS: Final[dict[str, Any]] = {
    "law": "geometric",
    "peak": 3,
    "left_weight": RATIO_SUM // 2,
    "right_weight": RATIO_SUM * 2 // 3,
    "most": 12,
}
_NOTHING: Final[dict[str, Any]] = {"law": "none"}


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (_NOTHING, {"law": "poisson"}, "of the shuffler's dummies must be one of: none"),
        (_NOTHING, {"keep_weight": 0}, "keep_weight is 0"),
        (_NOTHING, {"keep_weight": KEEP_SUM + 1}, f"keep_weight is {KEEP_SUM + 1}"),
        (_NOTHING, {"keep_weight": True}, "keep_weight must be a whole number"),
        (_NOTHING, {"trials": 4}, "trials is 4 and most is 0 for the distribution none"),
        (_NOTHING, {"peak": 2}, "peak is 2, left_weight is 0 .* all must be 0 unless"),
        (_NOTHING, {"most": 5}, "most is 5; it must be 0 where the shuffler"),
        (_COINS, {"trials": 0, "most": 0}, "trials is 0 and most is 0 for the"),
        (_COINS, {"most": 8}, "trials is 9 and most is 8 for the distribution binomial"),
        (_COINS, {"trials": MAX_PER_ITEM + 1}, f"trials is {MAX_PER_ITEM + 1}"),
        (_COINS, {"right_weight": 7}, "right_weight is 7; all must be 0 unless"),
        (_FLANKS, {"trials": 2}, "trials is 2 and most is 12 for the distribution geometric"),
        (_FLANKS, {"left_weight": 0}, "left_weight is 0, right"),
        (_FLANKS, {"right_weight": 0}, "right_weight is 0, peak is 3"),
        (_FLANKS, {"right_weight": RATIO_SUM}, f"right_weight is {RATIO_SUM}"),
        (_FLANKS, {"left_weight": -1}, "left_weight is -1"),
        (_FLANKS, {"peak": -1}, "peak is -1"),
        (_FLANKS, {"peak": 13}, "peak is 13 and most is 12"),
        (_FLANKS, {"most": MAX_PER_ITEM + 1}, f"most is {MAX_PER_ITEM + 1}"),
    ],
)
def test_a_distribution_that_breaks_a_rule_cannot_exist(
    base: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    """The message has the rule and the number that breaks it."""
    ShufflerSpec(**base)
    with pytest.raises(TaskError, match=message):
        ShufflerSpec(**base | change)


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
    spec = ShufflerSpec(**_FLANKS | change)
    distribution, z = spec.probabilities(), np.arange(spec.most + 1)
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    steps = np.where(z[1:] <= spec.peak, 1 / left, right)
    mean = sum(float(p) * k for p, k in zip(distribution, z, strict=True))
    spread = sum(float(p) * (k - mean) ** 2 for p, k in zip(distribution, z, strict=True))

    assert 1 == pytest.approx(distribution.sum(), abs=1e-12)
    np.testing.assert_allclose(distribution[1:] / distribution[:-1], steps, rtol=1e-9)
    assert (mean, spread) == pytest.approx(spec.moments())


def test_coins_have_a_binomials_moments() -> None:
    """The moments equal direct sums; only geometric noise has a table of probabilities."""
    spec = ShufflerSpec(**_COINS)
    distribution = stats.binom.pmf(np.arange(10), 9, 0.5)
    mean = float(distribution @ np.arange(10))

    assert (mean, float(distribution @ (np.arange(10) - mean) ** 2)) == pytest.approx(
        spec.moments()
    )
    for other in (spec, ShufflerSpec()):
        with pytest.raises(ValueError, match=f"the distribution is {other.law}"):
            other.probabilities()


def test_a_shuffler_without_noise_only_permutes() -> None:
    """A shuffler that drops reports or adds dummies does more."""
    assert ShufflerSpec().only_permutes
    assert not ShufflerSpec(keep_weight=KEEP_SUM - 1).only_permutes
    assert not ShufflerSpec(**_COINS).only_permutes
    assert (0.0, 0.0) == ShufflerSpec().moments()
    assert 0.25 == ShufflerSpec(keep_weight=KEEP_SUM // 4).keep_probability


@pytest.mark.parametrize("sent", [0, 1, 40])
@pytest.mark.parametrize(
    "spec",
    [
        ShufflerSpec(**_COINS, keep_weight=KEEP_SUM // 1000),
        ShufflerSpec(**_COINS | {"trials": 2000, "most": 2000}),
        ShufflerSpec(**_FLANKS | {"right_weight": RATIO_SUM * 199 // 200, "most": 20000}),
    ],
)
def test_an_honest_batch_is_within_the_bounds(spec: ShufflerSpec, sent: int) -> None:
    """Except with probability 1e-12, by the exact distribution; the bounds are nearly tight."""
    n_kept = stats.binom.pmf(np.arange(sent + 1), sent, spec.keep_probability)
    n_dummies = (
        spec.probabilities()
        if spec.law == "geometric"
        else stats.binom.pmf(np.arange(spec.most + 1), spec.trials, 0.5)
    )
    for domain_size in (1, 3):
        n_reports = n_kept
        for _ in range(domain_size):
            n_reports = signal.convolve(n_reports, n_dummies, method="direct")
        minimum, maximum = spec.batch_reports(sent, domain_size)

        assert n_reports[:minimum].sum() + n_reports[maximum + 1 :].sum() <= 1e-12
        below, above = np.cumsum(n_reports), np.cumsum(n_reports[::-1])[::-1]
        exact = np.flatnonzero(above > 5e-13)[-1] - np.flatnonzero(below > 5e-13)[0]
        assert maximum - minimum <= 1.2 * exact + 4
