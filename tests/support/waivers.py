"""Every check of a batch that an operator can waive: docs/operators/monitoring.md shows this."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shuffledp.common.accounting.assumptions import HONEST_SHUFFLER, NOBODY_DROPS
from shuffledp.common.messages.guarantee import CheckName


@dataclass(frozen=True, slots=True, kw_only=True)
class Waivable:
    """A check that an operator can waive, and what that costs."""

    passes: str
    """What holds for a batch that passes."""
    removes: tuple[str, ...]
    """Assumptions that no guarantee of a batch that failed it states."""
    figure: str
    """How the guarantees against the analyzer are computed instead."""


WAIVABLE: Final[Mapping[CheckName, Waivable]] = {
    "sentinels": Waivable(
        passes="acknowledged sentinels arrive, at the rate of the task's sampling and in random "
        "order",
        removes=(HONEST_SHUFFLER,),
        figure="the one against shuffler and analyzer together: the local ε, infinite "
        "if reports carry no noise, or what the device's own fixed dummies, of every view, give",
    ),
    "lengths": Waivable(
        passes="honest users' draws explain the number of long submissions",
        removes=(NOBODY_DROPS,),
        figure="as usual, with the dummies that the lengths which arrived show, of the assumed "
        "honest users with the fewest",
    ),
    "refusals": Waivable(
        passes="at most `most_refused_share` of the reports are refused",
        removes=(),
        figure="as for every batch, one honest user and their dummies less for each refused "
        "report; of clusters, one room less, whichever it was",
    ),
}
