"""The law of the dummies: how many come with each user's report, and who adds them."""

import math
from dataclasses import dataclass
from typing import Final, Self, get_args

from common.errors import TaskError
from common.protocols import DummyLaw, DummyMaker
from common.ranges import one_of, within

MAX_DUMMIES: Final = 2**20
"""Most dummies of one user; no envelope holds more."""
EXTRA_WEIGHT_SUM: Final = 2**32
"""What an extra_weight is a share of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DummySpec:
    """How many dummies come with each user's report, and who adds them."""

    law: DummyLaw
    """`fixed` without an extra weight, `fractional` with one."""
    per_user: int
    """Dummies that each user adds for certain."""
    added_by: DummyMaker
    extra_weight: int = 0
    """
    One more comes with probability extra_weight / EXTRA_WEIGHT_SUM, drawn by each user alone and
    whatever the value; 0 .. EXTRA_WEIGHT_SUM-1.
    """

    def __post_init__(self) -> None:
        one_of("the law of the dummies", self.law, get_args(DummyLaw))
        one_of("the maker of the dummies", self.added_by, get_args(DummyMaker))
        within("dummies per user", self.per_user, 0, MAX_DUMMIES)
        within("extra_weight", self.extra_weight, 0, EXTRA_WEIGHT_SUM - 1)
        if (self.law == "fractional") != (self.extra_weight > 0):
            raise TaskError(
                f"the law of the dummies is {self.law} and extra_weight is {self.extra_weight}; "
                "it is above 0 for the law fractional, and 0 for the law fixed"
            )

    @classmethod
    def averaging(cls, dummies_per_user: float, added_by: DummyMaker) -> Self:
        """
        Give the law with this mean, rounded to 1 / EXTRA_WEIGHT_SUM. Run by the analyzer.

        Args:
            dummies_per_user: 0 .. MAX_DUMMIES; 1.3 is one for certain and one more with
                probability .3. A whole number is the law `fixed`.
            added_by: Who adds them.

        Raises:
            TaskError: dummies_per_user is out of range, or no number.
        """
        if not 0 <= dummies_per_user <= MAX_DUMMIES:
            raise TaskError(
                f"dummies_per_user is {dummies_per_user}; it must lie between 0 and {MAX_DUMMIES}"
            )
        certain = math.floor(dummies_per_user)
        more, extra_weight = divmod(
            round((dummies_per_user - certain) * EXTRA_WEIGHT_SUM), EXTRA_WEIGHT_SUM
        )
        return cls(
            law="fractional" if extra_weight else "fixed",
            per_user=certain + more,
            added_by=added_by,
            extra_weight=extra_weight,
        )

    @property
    def maximum(self) -> int:
        """The most dummies that one user ever adds; submissions are padded to it."""
        return self.per_user + (self.extra_weight > 0)

    @property
    def expected_per_user(self) -> float:
        """How many dummies one user adds on average; 0 or more."""
        return self.per_user + self.extra_chance

    @property
    def extra_chance(self) -> float:
        """Probability of one more dummy than per_user; from 0 to below 1, exact."""
        return self.extra_weight / EXTRA_WEIGHT_SUM
