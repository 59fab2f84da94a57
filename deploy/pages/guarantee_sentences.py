"""Describe guarantees in sentences: each coalition's attack, and what it can conclude."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from shuffledp.common.messages.guarantee import Coalition, Guarantee, claimed
from shuffledp.deploy.pages import figures, page

_WORDS: Final = page.macros("guarantees.html")


class GuaranteeSentence(NamedTuple):
    """A guarantee and its description for readers."""

    guarantee: Guarantee
    who: str
    sentence: str
    epsilon: str
    delta: str
    odds: str
    """e^ε; empty if ε is infinite."""
    added: str
    """δ in plain digits; empty if it is 0."""
    certainty: str
    """Probability of guessing right between two equally likely values; empty if ε is infinite."""
    charged: bool
    """Whether the guarantee is the task's claim, which is charged to the budget."""
    weakest: bool
    """Whether the coalition, one of several, has the weakest guarantee."""


def guarantee_sentences(guarantees: Sequence[Guarantee]) -> tuple[GuaranteeSentence, ...]:
    """Describe guarantees, in order. If several are against one coalition, all of them hold."""
    best, charged = best_guarantees(guarantees), claimed(guarantees)
    weakest = max(best, key=lambda coalition: best[coalition].epsilon)
    return tuple(
        _sentence(row, charged=row is charged, weakest=len(best) > 1 and row.coalition == weakest)
        for row in guarantees
    )


def best_guarantees(guarantees: Sequence[Guarantee]) -> dict[Coalition, Guarantee]:
    """Return the guarantee with the smallest ε against each coalition, in order."""
    best: dict[Coalition, Guarantee] = {}
    for guarantee in guarantees:
        other = best.get(guarantee.coalition, guarantee)
        best[guarantee.coalition] = min(other, guarantee, key=lambda row: row.epsilon)
    return best


def _sentence(guarantee: Guarantee, *, charged: bool, weakest: bool) -> GuaranteeSentence:
    epsilon, delta = guarantee.epsilon, guarantee.delta
    finite, added = math.isfinite(epsilon), figures.format_probability(delta) if delta else ""
    return GuaranteeSentence(
        guarantee=guarantee,
        who=coalition_name(guarantee.coalition),
        sentence=_WORDS.sentence(guarantee).unescape().replace("\n", " "),
        epsilon=figures.format_privacy(epsilon),
        delta=figures.format_privacy(delta),
        odds=figures.format_odds(epsilon) if finite else "",
        added=added,
        certainty=figures.format_certainty(epsilon, delta) if finite else "",
        charged=charged,
        weakest=weakest,
    )


def coalition_name(coalition: str) -> str:
    """Name a coalition, even one without a guarantee, such as an audit's `shuffler+users`."""
    return str(_WORDS.name(coalition).unescape())
