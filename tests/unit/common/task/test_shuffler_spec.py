from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from common.errors import TaskError
from common.task.shuffler_spec import KEEP_SUM, MAX_PER_ITEM, RATIO_SUM, ShufflerSpec

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
        (_NOTHING, {"law": "poisson"}, "the law of the shuffler's dummies must be one of: none"),
        (_NOTHING, {"keep_weight": 0}, "keep_weight is 0"),
        (_NOTHING, {"keep_weight": KEEP_SUM + 1}, f"keep_weight is {KEEP_SUM + 1}"),
        (_NOTHING, {"keep_weight": True}, "keep_weight must be a whole number"),
        (_NOTHING, {"trials": 4}, "is none, trials is 4 and most is 0"),
        (_NOTHING, {"peak": 2}, "is none; peak and weights are for geometric alone"),
        (_NOTHING, {"most": 5}, "most is 5; without a law it must be 0"),
        (_COINS, {"trials": 0, "most": 0}, "is binomial, trials is 0 and most is 0"),
        (_COINS, {"most": 8}, "is binomial, trials is 9 and most is 8"),
        (_COINS, {"trials": MAX_PER_ITEM + 1}, f"dummies is {MAX_PER_ITEM + 1}"),
        (_COINS, {"right_weight": 7}, "is binomial; peak and weights are for geometric alone"),
        (_FLANKS, {"trials": 2}, "is geometric, trials is 2 and most is 12"),
        (_FLANKS, {"left_weight": 0}, "dummies are 0 and"),
        (_FLANKS, {"right_weight": 0}, "and 0, peak is 3"),
        (_FLANKS, {"right_weight": RATIO_SUM}, f"right_weight is {RATIO_SUM}"),
        (_FLANKS, {"left_weight": -1}, "left_weight is -1"),
        (_FLANKS, {"peak": -1}, "the peak of the shuffler's dummies is -1"),
        (_FLANKS, {"peak": 13}, "peak is 13 and most is 12"),
        (_FLANKS, {"most": MAX_PER_ITEM + 1}, f"most dummies of one item is {MAX_PER_ITEM + 1}"),
    ],
)
def test_a_law_that_breaks_a_rule_cannot_exist(
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
    """Steps are ratios of weights, probabilities sum to 1, moments are the direct sums."""
    spec = ShufflerSpec(**_FLANKS | change)
    law, z = spec.probabilities(), np.arange(spec.most + 1)
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    steps = np.where(z[1:] <= spec.peak, 1 / left, right)
    mean = sum(float(p) * k for p, k in zip(law, z, strict=True))
    spread = sum(float(p) * (k - mean) ** 2 for p, k in zip(law, z, strict=True))

    assert 1 == pytest.approx(law.sum(), abs=1e-12)
    np.testing.assert_allclose(law[1:] / law[:-1], steps, rtol=1e-9)
    assert (mean, spread) == pytest.approx(spec.moments())


def test_coins_have_a_binomials_moments() -> None:
    """The direct sums; other laws than the geometric one have no probabilities."""
    spec = ShufflerSpec(**_COINS)
    law = stats.binom.pmf(np.arange(10), 9, 0.5)
    mean = float(law @ np.arange(10))

    assert (mean, float(law @ (np.arange(10) - mean) ** 2)) == pytest.approx(spec.moments())
    for other in (spec, ShufflerSpec()):
        with pytest.raises(ValueError, match=f"the law is {other.law}"):
            other.probabilities()


def test_a_shuffler_that_only_permutes_is_idle() -> None:
    """Not if it drops reports or adds dummies."""
    assert ShufflerSpec().idle
    assert not ShufflerSpec(keep_weight=KEEP_SUM - 1).idle
    assert not ShufflerSpec(**_COINS).idle
    assert (0.0, 0.0) == ShufflerSpec().moments()
    assert 0.25 == ShufflerSpec(keep_weight=KEEP_SUM // 4).kept
