"""Theorems and assumptions of guarantees, in words; their sources: docs/theory/accounting.md."""

from typing import Final

from common.messages.guarantee import rounded_up
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, KEEP_SUM, RATIO_SUM, DummySpec, ShufflerSpec

FORMULA_1: Final = (
    "privacy blanket, exact two-binomial form, rounded up ([BBGN19]; "
    "formula 1 of common/accounting)"
)
ITEM_NOISE: Final = (
    "noise on each item's count, exact for the worst case, rounded up ([MSE25], [BC20]; "
    "item noise of common/accounting)"
)
HYBRID: Final = (
    "randomized response and noise on each item's count, the least of four bounds, rounded up "
    "(no paper's: hybrid of common/accounting)"
)
COMPOSED: Final = (
    "privacy blanket for each round, dominating pairs composed ([BBGN19], [ZDW22]; "
    "common/accounting)"
)
ITEM_NOISE_COMPOSED: Final = (
    "noise on each item's count for each round, dominating pairs composed ([MSE25], [ZDW22]; "
    "common/accounting)"
)
CLONES: Final = (
    "hiding among clones, for any randomizer with this local epsilon, rounded up ([FMT21] with the "
    "coin of [FMT23]; clones of common/accounting)"
)
CLONES_COMPOSED: Final = (
    "hiding among clones for each round, dominating pairs composed ([FMT21], [ZDW22]; "
    "common/accounting)"
)
LOCAL: Final = "a randomizer with integer weights: the likelihood ratio is at most e^ε"
NO_LOCAL_NOISE: Final = "none: reports carry no local noise, and nothing is certified"
ENCRYPTION: Final = (
    "computational: HPKE [RFC9180], every ciphertext of one length, as many from every user"
)


HONEST_SHUFFLER: Final = "the shuffler permutes uniformly and does not collude with the analyzer"
ALONE: Final = ("your own device randomizes as the task says", "nobody else needs to be honest")
ENCRYPTED: Final = "the encryption holds"


def permanent_assumptions(permanent_epsilon: float) -> tuple[str, ...]:
    """Return the assumptions of answers that share permanent noise."""
    changes = (
        "your answer to this question stays the same in all its tasks: a changed answer may be "
        "visible, whatever epsilon is"
    )
    lifetime = rounded_up(permanent_epsilon)
    return (
        changes,
        f"an unchanged answer costs at most {lifetime} in all, however often it is given",
        "the secret behind the noise stays on your device",
    )


def with_dummies(dummies: DummySpec) -> str:
    """Return the end of a sentence about honest users: the dummies that they add."""
    if dummies.maximum == 0:
        return ""
    chance = f"{dummies.extra_probability:.6g} ({dummies.extra_weight} in {EXTRA_WEIGHT_SUM})"
    if not dummies.uniform:
        return (
            f" and add a dummy of each item with probability {chance}, drawn by each alone, "
            f"and drawn again where there are more than {dummies.most}"
        )
    certain = f" and add uniform dummies, {dummies.per_user} each"
    if dummies.law == "fixed":
        return certain
    if dummies.law == "fractional":
        more = f"{certain} and one more" if dummies.per_user else " and add one uniform dummy"
        return f"{more} with probability {chance}, drawn by each alone"
    if dummies.law == "binomial":
        return (
            f"{certain} and as many more as of {dummies.trials} chances of {chance} come true, "
            "drawn by each alone"
        )
    return (
        f"{certain} and {dummies.trials} geometric numbers more, each going on with probability "
        f"{chance}, drawn by each alone, and drawn again where they are more than {dummies.most}"
    )


def shuffler_assumptions(spec: ShufflerSpec) -> tuple[str, ...]:
    """Return the assumptions on the shuffler's dummies and sampling; empty if it only permutes."""
    stated = []
    if spec.keep_probability < 1:
        stated.append(
            f"the shuffler keeps each user's report with probability {spec.keep_probability:.6g} "
            f"({spec.keep_weight} in {KEEP_SUM}), drawn for each apart, and reveals to nobody which"
        )
    if spec.law == "binomial":
        drawn = f"as many as come up heads among {spec.trials} fair coins"
    else:
        drawn = (
            f"a two-sided geometric number with its peak at {spec.peak}, weights "
            f"{spec.left_weight} and {spec.right_weight} in {RATIO_SUM}, at most {spec.most}"
        )
    if spec.law != "none":
        stated.append(
            f"the shuffler adds dummies that name each item, for each apart {drawn}, after the "
            "batch has closed, and reveals to nobody which or how many they are"
        )
        stated.append("none of these dummies are refused: an honest shuffler's are always valid")
    return tuple(stated)
