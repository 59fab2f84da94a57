"""What a release by a trusted collector promises: never a bare number."""

from dataclasses import dataclass
from typing import Final

from common.errors import AccountingError
from common.messages.guarantee import REPLACE_ONE

MOST_EPSILON: Final = 1000.0
"""That a mechanism takes: no noise is left by then."""
NOTHING_ELSE = "the collector sees every value, keeps it to itself, and releases nothing else"


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralGuarantee:
    """(ε, δ)-differential privacy of each person against whoever sees what is released."""

    epsilon: float
    """An upper bound."""
    delta: float
    theorem: str
    """What the figure follows from, with its source."""
    neighbouring: str = REPLACE_ONE
    assumptions: tuple[str, ...] = (NOTHING_ELSE,)

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < float("inf"):
            raise AccountingError(f"epsilon is {self.epsilon}; it must be above 0 and finite")
        if not 0 <= self.delta < 1:
            raise AccountingError(f"delta is {self.delta}; it must be at least 0 and below 1")
