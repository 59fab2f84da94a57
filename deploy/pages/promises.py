"""Guarantees in words: who pools what, and what your value can at most change for them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.messages.guarantee import REPLACE_ONE, Coalition, Guarantee, claimed
from deploy.pages.figures import certainty, odds, privacy, probability

_WHO: Final[Mapping[Coalition, tuple[str, str]]] = MappingProxyType(
    {
        "analyzer": (
            "The analyzer alone",
            (
                "If the analyzer studies every report that it opened, which came to it in random "
                "order and without names"
            ),
        ),
        "analyzer+users": (
            "The analyzer and dishonest users",
            (
                "If users tell the analyzer which reports and dummies are theirs, so that fewer "
                "are left to hide yours"
            ),
        ),
        "analyzer+skippers": (
            "The analyzer, where users add no dummies",
            (
                "If users do not add the dummies that they should, and the analyzer studies what "
                "is left"
            ),
        ),
        "shuffler+analyzer": (
            "The shuffler and the analyzer together",
            (
                "If the shuffler and the analyzer pool what they saw, so that they know who sent "
                "each report and what is in it"
            ),
        ),
        "shuffler": (
            "The shuffler alone",
            "If the shuffler studies the sealed reports that it passed on, for which it has no key",
        ),
        "network": (
            "Somebody on the network",
            "If somebody records all that is sent between devices and services",
        ),
    }
)

_PARTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "analyzer": "the analyzer",
        "shuffler": "the shuffler",
        "users": "dishonest users",
        "skippers": "users who add no dummies",
        "network": "somebody on the network",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One guarantee, as a reader is shown it."""

    coalition: Coalition
    who: str
    sentence: str
    epsilon: str
    delta: str
    odds: str
    """How many times as likely; empty where nothing is promised."""
    added: str
    """What may come on top of that, the δ in plain digits; empty where it is 0."""
    certainty: str
    """How probably they guess right between two equally likely values; empty as above."""
    neighbouring: str
    theorem: str
    assumptions: tuple[str, ...]
    charged: bool
    """Whether it is the one that the task claims, and its release is charged."""
    weakest: bool
    """Whether it is of the coalition against which least is promised."""


def who(coalition: str) -> str:
    """Name a coalition, also one of an audit to which nothing is promised: `shuffler+users`."""
    for known, (name, _) in _WHO.items():
        if known == coalition:
            return name
    parties = [_PARTIES.get(party, party) for party in coalition.split("+")]
    if len(parties) == 1:
        alone = " alone" * (coalition in _PARTIES)
        return f"{parties[0][:1].upper()}{parties[0][1:]}{alone}"
    named = f"{', '.join(parties[:-1])} and {parties[-1]}"
    return f"{named[:1].upper()}{named[1:]} together"


def promises(guarantees: Sequence[Guarantee]) -> tuple[Promise, ...]:
    """Put guarantees into words, in their order."""
    weakest = _weakest(guarantees)
    charged = claimed(guarantees)
    return tuple(
        Promise(
            coalition=guarantee.coalition,
            who=_WHO[guarantee.coalition][0],
            sentence=_sentence(guarantee),
            epsilon=privacy(guarantee.epsilon),
            delta=privacy(guarantee.delta),
            odds=odds(guarantee.epsilon) if math.isfinite(guarantee.epsilon) else "",
            added=probability(guarantee.delta) if guarantee.delta else "",
            certainty=(
                certainty(guarantee.epsilon, guarantee.delta)
                if math.isfinite(guarantee.epsilon)
                else ""
            ),
            neighbouring=guarantee.neighbouring,
            theorem=guarantee.theorem,
            assumptions=guarantee.assumptions,
            charged=guarantee is charged,
            weakest=guarantee.coalition == weakest,
        )
        for guarantee in guarantees
    )


def _weakest(guarantees: Sequence[Guarantee]) -> Coalition | None:
    """Give the coalition against which least is promised; several promises to it hold at once."""
    best: dict[Coalition, float] = {}
    for guarantee in guarantees:
        before = best.get(guarantee.coalition, math.inf)
        best[guarantee.coalition] = min(before, guarantee.epsilon)
    if len(best) < 2:  # noqa: PLR2004  # nothing to compare
        return None
    return max(best, key=lambda coalition: best[coalition])


def _sentence(guarantee: Guarantee) -> str:
    """Say what may happen, and what follows for you at most."""
    what_if = f"{_WHO[guarantee.coalition][1]}, "
    if math.isinf(guarantee.epsilon):
        return what_if + "nothing is promised: they may learn your value."
    if guarantee.epsilon == 0 and guarantee.delta == 0:
        return what_if + "they learn nothing of your value."
    added = f", plus at most {probability(guarantee.delta)}" if guarantee.delta else ""
    return (
        f"{what_if}whatever they conclude is at most {odds(guarantee.epsilon)} times as likely "
        f"with your value as with any other in its place{added}."
    )


def neighbours_in_words(neighbouring: str) -> str:
    """Say what two data sets that are to look alike differ in."""
    return (
        "your value is replaced by any other, everybody still takes part"
        if neighbouring == REPLACE_ONE
        else neighbouring
    )
