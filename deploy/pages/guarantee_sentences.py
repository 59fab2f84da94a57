"""Guarantees in plain sentences: what each coalition pools, and what it can conclude."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from common.messages.guarantee import Coalition, Guarantee, claimed
from deploy.pages.figures import certainty, odds, privacy, probability

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
    "shuffler+analyzer": (
        "The shuffler and the analyzer together",
        "If the shuffler and the analyzer pool who sent each report and what is in it",
    ),
    "shuffler": (
        "The shuffler alone",
        "If the shuffler studies the sealed reports, for which it has no key",
    ),
    "network": (
        "Somebody on the network",
        "If somebody records all that is sent between devices and services",
    ),
}
"""The name of each, and the attack."""


class GuaranteeSentence(NamedTuple):
    """One guarantee, as shown to a reader."""

    guarantee: Guarantee
    coalition: Coalition
    who: str
    sentence: str
    epsilon: str
    delta: str
    odds: str
    """e^ε; empty where nothing is guaranteed."""
    added: str
    """δ in plain digits; empty where it is 0."""
    certainty: str
    """Probability of a right guess between two equally likely values; empty as `odds`."""
    charged: bool
    """Whether the task claims it, and its release is charged by it."""
    weakest: bool
    """Whether it is against the coalition with the weakest guarantee."""


def guarantee_sentences(guarantees: Sequence[Guarantee]) -> tuple[GuaranteeSentence, ...]:
    """Put guarantees into words, in their order; of several against one coalition all hold."""
    best: dict[Coalition, float] = {}
    for one in guarantees:
        best[one.coalition] = min(best.get(one.coalition, math.inf), one.epsilon)
    charged, weakest = claimed(guarantees), max(best, key=lambda coalition: best[coalition])
    return tuple(
        _sentence(one, charged=one is charged, weakest=len(best) > 1 and one.coalition == weakest)
        for one in guarantees
    )


def _sentence(one: Guarantee, *, charged: bool, weakest: bool) -> GuaranteeSentence:
    finite, added = math.isfinite(one.epsilon), probability(one.delta) if one.delta else ""
    consequence = "nothing is promised: they may learn your value."
    if one.epsilon == 0 and one.delta == 0:
        consequence = "they learn nothing of your value."
    elif finite:
        consequence = (
            f"any conclusion of theirs is at most {odds(one.epsilon)} times as likely with your "
            f"value as with any other in its place{f', plus at most {added}' * bool(added)}."
        )
    return GuaranteeSentence(
        guarantee=one,
        coalition=one.coalition,
        who=coalition_name(one.coalition),
        sentence=f"{_COALITIONS[one.coalition][1]}, {consequence}",
        epsilon=privacy(one.epsilon),
        delta=privacy(one.delta),
        odds=odds(one.epsilon) if finite else "",
        added=added,
        certainty=certainty(one.epsilon, one.delta) if finite else "",
        charged=charged,
        weakest=weakest,
    )


def coalition_name(coalition: str) -> str:
    """Name a coalition, also one that has no guarantee, such as `shuffler+users` of an audit."""
    if coalition in _COALITIONS:
        return _COALITIONS[coalition][0]
    return f"The {' and the '.join(coalition.split('+'))}"
