"""Describe guarantees in sentences: each coalition's attack, and what it can conclude."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from common.messages.guarantee import Coalition, Guarantee, claimed
from deploy.pages import figures

_COALITIONS: Final[Mapping[str, tuple[str, str]]] = {
    "analyzer": (
        "The analyzer alone",
        "If the analyzer studies every report that it opened, in random order and without names",
    ),
    "analyzer+users": (
        "The analyzer and dishonest users",
        "If users tell the analyzer which reports and dummies are theirs",
    ),
    "analyzer+skippers": (
        "The analyzer, where users add no dummies",
        "If users do not add the dummies that they should, and the analyzer studies the rest",
    ),
    "analyzer+sybils": (
        "The analyzer, where nobody else takes part",
        "If all other users are made up, which the task allows since it has no tokens",
    ),
    "issuer+analyzer": (
        "The issuer and the analyzer together",
        "If the issuer gives the analyzer tokens for users that they make up",
    ),
    "shuffler+analyzer": (
        "The shuffler and the analyzer together",
        "If the shuffler and the analyzer pool who sent each report and what is in it",
    ),
    "shuffler": (
        "The shuffler alone",
        "If the shuffler studies the sealed reports, for which it has no key",
    ),
    "issuer": (
        "The issuer alone",
        "If the issuer studies who asked for a token, and the blinded messages that it signed",
    ),
    "issuer+shuffler": (
        "The issuer and the shuffler together",
        "If the issuer and the shuffler pool whom tokens were given to, and which were spent",
    ),
    "network": (
        "An eavesdropper on the network",
        "If an eavesdropper records all traffic between devices and services",
    ),
}


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
    consequence = "nothing is promised: your value may be learned."
    if epsilon == 0 and delta == 0:
        consequence = "nothing about your value can be learned."
    elif finite:
        consequence = (
            f"any conclusion is at most {figures.format_odds(epsilon)} times as likely with your "
            f"value as with any other in its place{f', plus at most {added}' * bool(added)}."
        )
    return GuaranteeSentence(
        guarantee=guarantee,
        who=coalition_name(guarantee.coalition),
        sentence=f"{_COALITIONS[guarantee.coalition][1]}, {consequence}",
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
    if coalition in _COALITIONS:
        return _COALITIONS[coalition][0]
    return f"The {' and the '.join(coalition.split('+'))}"
