"""PrivKV as a task states it: two randomized bits, and what is reported of keys nobody owns."""

from dataclasses import dataclass
from typing import Final, get_args

from common.errors import TaskError
from common.mechanism_spec import MAX_REPORT_BYTES, MAX_WEIGHT_SUM
from common.number_spec import check_range
from common.protocols import KeyValueMechanismName
from common.ranges import one_of, real, within

MAX_KEYS: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueSpec:
    """Whether a key is owned, with one pair of weights, and its value with another [YHMZ19]."""

    name: KeyValueMechanismName
    low: float
    high: float
    """Of every value; what lies outside is refused on the device."""
    steps: int
    """Intervals of the grid that values are moved to, as in common/number_spec.py."""
    key_true_weight: int
    key_other_weight: int
    """The odds of whether the key is owned: e^ε1 at most. 1 : 1 tells nothing of it and costs
    nothing: later iterations are about values alone (PrivKVM)."""
    value_true_weight: int
    value_other_weight: int
    """The odds of the value's sign: e^ε2 at most."""
    fakes: tuple[float, ...]
    """What a device takes for the value of a key that it does not own, one a key: the means of the
    iteration before (PrivKVM). Nothing: the middle of the range, which is PrivKV."""
    report_bytes: int

    def __post_init__(self) -> None:
        one_of("mechanism", self.name, get_args(KeyValueMechanismName))
        check_range(self.low, self.high)
        within("steps", self.steps, 2, 2**20)
        if self.steps % 2:
            raise TaskError(f"steps is {self.steps}; it must be even")
        for part, true, other, least in (
            ("key", self.key_true_weight, self.key_other_weight, 0),
            ("value", self.value_true_weight, self.value_other_weight, 1),
        ):
            within(f"{part}_other_weight", other, 1, MAX_WEIGHT_SUM)
            within(f"{part}_true_weight", true, other + least, MAX_WEIGHT_SUM - other)
        for fake in self.fakes:
            if not self.low <= real("a fake value", fake) <= self.high:
                raise TaskError(
                    f"a fake value is {fake}; it must lie between {self.low} and {self.high}"
                )
        within("report_bytes", self.report_bytes, 1, MAX_REPORT_BYTES)

    @property
    def noiseless(self) -> bool:
        """Never: both bits go with noise."""
        return False
