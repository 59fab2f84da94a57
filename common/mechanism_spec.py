"""A mechanism as a task states it: its name, and the integers that every probability comes from."""

from dataclasses import dataclass
from typing import Final, get_args

from common.errors import TaskError
from common.protocols import MechanismName
from common.ranges import one_of, within

MAX_DOMAIN_SIZE: Final = 2**24
MAX_WEIGHT_SUM: Final = 2**63 - 1
MAX_REPORT_BYTES: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismSpec:
    """
    A mechanism with its integer weights, as a task states them.

    Of two answers that are told apart by the truth alone, the one is true_weight / other_weight
    times as likely as the other. Randomized response over `buckets` answers says the truth with
    probability true_weight / W and each other with other_weight / W, W = true_weight +
    (buckets - 1) · other_weight; what other mechanisms make of the weights stands in their files.
    Weights 1 and 0 are the mechanism without local noise: every report says the truth.
    """

    name: MechanismName
    buckets: int
    """Possible answers: g for hashing, the domain size for GRR, 2 for each bit of a unary encoding,
    places on the line for the square wave."""
    digits: int
    """Digits of an item in base `buckets` (local hashing); 1 for every other mechanism."""
    true_weight: int
    other_weight: int
    report_bytes: int
    """Length of a report before sealing."""

    def __post_init__(self) -> None:
        one_of("mechanism", self.name, get_args(MechanismName))
        within("buckets", self.buckets, 2, MAX_DOMAIN_SIZE)
        within("digits", self.digits, 1, 24)
        within("report_bytes", self.report_bytes, 1, MAX_REPORT_BYTES)
        within("other_weight", self.other_weight, 0, MAX_WEIGHT_SUM)
        within("true_weight", self.true_weight, self.other_weight + 1, MAX_WEIGHT_SUM)
        if self.other_weight == 0 and self.true_weight != 1:
            raise TaskError(
                f"true_weight is {self.true_weight}; where other_weight is 0 it must be 1"
            )
        total = self.true_weight + (self.buckets - 1) * self.other_weight
        within("the sum of the weights", total, 1, MAX_WEIGHT_SUM)

    @property
    def noiseless(self) -> bool:
        """Whether every report says the truth."""
        return self.other_weight == 0
