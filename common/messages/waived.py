"""The checks that a released batch failed, as its result and the ledger state them."""

from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

from common.errors import WireError

Check = Literal["sentinels", "lengths", "refusals"]
"""The checks of a batch; `WAIVABLE` in common/accounting/assumptions.py tells what each waiver
costs."""
_MAX_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class Waived:
    """Waived checks, and the numbers that guarantees rely on without the check of lengths."""

    checks: tuple[Check, ...] = ()
    by_length: tuple[int, ...] = ()
    """Submissions of each of the task's lengths; empty unless `lengths` is waived."""

    def __post_init__(self) -> None:
        """Raise WireError unless the lengths are given if, and only if, their check is waived."""
        if bool(self.by_length) != ("lengths" in self.checks):
            raise WireError("numbers by length belong to the waived check of lengths alone")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `str` returns, such as "lengths 970 30"; raise WireError for other text."""
        words = text.split()
        numbers = [word for word in words if word.isdecimal() and len(word) <= _MAX_DIGITS]
        checks = tuple(check for check in get_args(Check) if check in words)
        found = cls(checks, tuple(map(int, numbers)))
        if str(found) != text:
            raise WireError("the waived checks are not a list of checks and numbers by length")
        return found

    def __str__(self) -> str:
        return " ".join([*self.checks, *map(str, self.by_length)])


NONE_WAIVED: Final = Waived()
