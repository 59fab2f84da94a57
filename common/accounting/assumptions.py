"""Theorems and assumptions of guarantees, in words; for sources see docs/theory/accounting.md."""

from collections.abc import Mapping, Sequence
from typing import Final

from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task.dummies import Dummies
from shuffledp.common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from shuffledp.common.task.shuffling import noises_in_words

FORMULA_1: Final = (
    "privacy blanket bound, binomial form, rounded up ([BBGN19]; derivation: "
    "docs/theory/accounting.md)"
)
TWO_ITEMS: Final = (
    "randomized response over two items, exact for the worst answers of all others, rounded up "
    "(from no paper; proof: docs/theory/accounting.md)"
)
ITEM_NOISE: Final = (
    "noise on each item's count, exact for the worst case, rounded up ([MSE25], [BC20]; "
    "derivation: docs/theory/accounting.md)"
)
HYBRID: Final = (
    "randomized response and noise on each item's count, the least of four bounds, rounded up "
    "(from no paper; proof: docs/theory/accounting.md)"
)
CLONES: Final = (
    "hiding among clones, for any randomizer with this local epsilon, rounded up ([FMT21] with the "
    "victim's finite odds as in [FMT23]; docs/theory/accounting.md)"
)
CLUSTERS: Final = (
    "clusters of positive and negative reports, all lengths known, rounded up (from no paper; "
    "proof: docs/theory/accounting.md)"
)


def _composed(noise: str, source: str, known: str = "") -> str:
    """Name the theorem of several rounds, each with this noise."""
    pairs = f"{known}dominating pairs composed ({source} [ZDW22]; docs/theory/accounting.md)"
    return f"{noise} for each round, {pairs}"


COMPOSED: Final[Mapping[str, str]] = {
    FORMULA_1: _composed("privacy blanket bound", "[BBGN19],"),
    TWO_ITEMS: _composed("randomized response over two items, exact", "from no paper;"),
    ITEM_NOISE: _composed("noise on each item's count", "[MSE25],"),
    HYBRID: _composed("randomized response and noise on each item's count", "from no paper;"),
    CLONES: _composed("hiding among clones", "[FMT21],"),
    CLUSTERS: _composed(
        "clusters of positive and negative reports", "from no paper;", "all lengths known, "
    ),
}
"""The theorem of several rounds, by that of one."""


def of_views(theorem: str) -> str:
    """Name the theorem of a value's views, each by this one; of one round, or several."""
    return f"each view of the value: {theorem}; all views and rounds composed ([ZDW22])"


LOCAL: Final = "a randomizer with integer weights: the likelihood ratio is at most e^ε"
NO_LOCAL_NOISE: Final = "none: reports carry no local noise, and nothing is certified"
ENCRYPTION: Final = (
    "computational: HPKE [RFC9180]; reports have one length, and a user's number of them does not "
    "depend on the value (docs/theory/accounting.md#lengths)"
)

HONEST_SHUFFLER: Final = "the shuffler permutes uniformly and does not collude with the analyzer"
ALONE: Final = ("your own device randomizes as the task says", "nobody else needs to be honest")
ENCRYPTED: Final = "the encryption holds"
NOBODY_DROPS: Final = (
    "nobody keeps long submissions, and their dummies, from the shuffler: a large shortage stops "
    "the release, unless dishonest users fill it"
)
BY_LENGTH: Final = (
    "somebody may have kept submissions from the shuffler by their length: only dummies that the "
    "lengths of those that arrived show are counted, and dishonest users may have sent the most"
)
SYBILS: Final = (
    "nobody submits twice or makes up users: the task has no tokens, so anybody may submit any "
    "number of times, and the analyzer could make up every answer but yours"
)
ENTITLED: Final = (
    "each submission spent a token, of which the issuer gives one to each entitled person"
)


def permanent_assumptions(permanent_epsilon: float) -> tuple[str, ...]:
    """Return the assumptions behind answers that share permanent noise, with their total ε."""
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


def with_dummies(dummies: Dummies) -> str:
    """Describe honest users' dummies, as the end of a sentence; empty if they add none."""
    return f" and add {dummies.words}" if dummies.maximum else ""


def shuffler_assumptions(
    views: Sequence[ShufflerSpec], name: str = "the shuffler"
) -> tuple[str, ...]:
    """
    Return the assumptions on a shuffler's dummies and sampling; empty if it only permutes.

    `views` are its specifications for each view.
    """
    stated, spec = [], views[0]
    if spec.keep_probability < 1:
        stated.append(
            f"{name} keeps each user's report with probability {spec.keep_probability:.6g} "
            f"({spec.keep_weight} in {KEEP_SUM}), drawn independently, and reveals to nobody which"
        )
    if any(view.noise.most for view in views):
        numbers = noises_in_words([view.noise for view in views])
        stated.append(
            f"{name} adds dummies that name each item, for each item {numbers}, drawn "
            "independently after the batch has closed, and reveals to nobody which or how many"
        )
        stated.append("none of these dummies are refused: an honest shuffler's are always valid")
    return tuple(stated)
