"""What a guarantee follows from, in words, with its source: see README.md beside this file."""

from typing import Final

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
