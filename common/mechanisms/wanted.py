"""What is wanted of a mechanism before its integers are known."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from common.errors import TaskError
from common.mechanism_spec import MechanismSpec
from common.mechanisms.response_weights import ResponseWeights
from common.protocols import MechanismName


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A mechanism by name, and what its integers follow from."""

    name: MechanismName
    domain_size: int
    """Items, at least 2."""
    buckets: int
    """For hashing; every other mechanism knows its answers from the items, and ignores it."""
    local_epsilon: float
    """Above 0 and at most 20, or infinite for reports without noise."""

    def spec(
        self, weights: ResponseWeights, *, buckets: int, dtype: np.dtype[Any], digits: int = 1
    ) -> MechanismSpec:
        """
        State the integers that were found.

        Raises:
            TaskError: One of them is out of its range.
        """
        return MechanismSpec(
            name=self.name,
            buckets=buckets,
            digits=digits,
            true_weight=weights.true,
            other_weight=weights.other,
            report_bytes=dtype.itemsize,
        )


def check_answers(spec: MechanismSpec, buckets: int) -> None:
    """
    Check the answers of a mechanism that has no choice of them, and no digits.

    Raises:
        TaskError: The task states others, so that one mechanism would have two forms.
    """
    if (spec.buckets, spec.digits) != (buckets, 1):
        raise TaskError(
            f"the mechanism {spec.name} has {buckets} buckets and one digit here; "
            f"the task says {spec.buckets} and {spec.digits}"
        )
