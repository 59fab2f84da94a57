"""Designs that are tasks; for texts, numbers and pairs, with the largest local ε. Pure."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final, Self

from analyzer.task_builder import complete
from common.accounting.guarantees import PrivacyParameters
from common.errors import PlanError
from common.task.draft import TaskDraft
from common.task.task import MAX_LOCAL_EPSILON, Task
from lab.planning.design import Design
from lab.planning.planned_kinds import PLANNED_KINDS
from lab.planning.requirements import MIN_VALUE_EPSILON, UNUSED_KEY, Requirements

BIASED: Final = frozenset({"multi-rphm"})
"""Protocols with a bias, from a projection, that the predicted error does not include."""
_REL_TOL: Final = 1e-2
"""Relative tolerance of the search for the largest local ε."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDesign(Design):
    """A protocol with its parameters as a draft and its task, for any kind but `categorical`."""

    base: TaskDraft
    task: Task

    @classmethod
    def of(cls, draft: TaskDraft, target: Requirements, **facts: Any) -> Self:  # noqa: ANN401  # of a Design
        """Return the design of a draft's task; raise TaskError if the draft breaks a rule."""
        noiseless = math.isinf(draft.local_epsilon)  # its budget follows from the plan
        alone = dataclasses.replace(draft, population="") if noiseless else draft
        task = complete(alone, analyzer_key=UNUSED_KEY, nonce=bytes(32))
        return cls(
            protocol=draft.protocol,
            target=target,
            buckets=draft.buckets,
            local_epsilon=task.local_epsilon,
            dummies=task.dummies,
            shuffler=task.shuffler,
            base=draft,
            task=task,
            **facts,
        )

    @property
    def bytes_per_user(self) -> int:
        """Average length of a submission's envelope in bytes, rounded."""
        return round(self.task.expected_envelope_bytes)

    @property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters from which guarantees are computed."""
        return dataclasses.replace(PrivacyParameters.of(self.task), rounds=self.target.rounds)

    @property
    def draft(self) -> TaskDraft:
        """The draft of the task."""
        return self.base

    @property
    def mse(self) -> float:
        """The predicted mean squared error; of buckets, that of the prefix that counts."""
        errors = PLANNED_KINDS[self.task.kind].errors(self.task, self.target.n_users)
        return self.target.prefix_error(errors)

    @property
    def smallest_share(self) -> float:
        """The smallest share that is found with 95 % probability; 0 for other kinds."""
        return PLANNED_KINDS[self.task.kind].smallest_share(self.task, self.target.n_users)


def value_design(protocol: str, target: Requirements) -> ValueDesign:
    """
    Return a protocol's design with the largest local ε that meets the target.

    Raises PlanError if there is none, TaskError if the requirements break a rule of the protocol's
    tasks. Cost: about ten tasks, tenths of a second each.
    """
    high = min(target.local_cap, MAX_LOCAL_EPSILON)
    best = _design_at(protocol, high, target)
    if best is not None:
        return best
    low = max(MIN_VALUE_EPSILON, min(high, target.central_epsilon))  # central ε ≤ local ε
    best = _design_at(protocol, low, target)
    if best is None:
        raise PlanError(
            f"no local epsilon meets a central epsilon of {target.central_epsilon:g} at delta "
            f"{target.delta:g} with {target.n_min} users: use more users, a larger epsilon or a "
            "larger delta"
        )
    while high > low * (1 + _REL_TOL):
        middle = math.sqrt(low * high)
        better = _design_at(protocol, middle, target)
        best, low, high = (best, low, middle) if better is None else (better, middle, high)
    return best


def _design_at(protocol: str, local_epsilon: float, target: Requirements) -> ValueDesign | None:
    """Return the design with this local ε, or None if its task does not meet the target."""
    kind = PLANNED_KINDS[target.kind]
    draft = kind.draft(protocol, local_epsilon, target)
    if draft is None:
        return None
    floor = kind.is_floor(draft)
    design = ValueDesign.of(draft, target, biased=protocol in BIASED, floor=floor)
    if design.task.central_epsilon > target.central_epsilon:
        return None
    return design if design.local_epsilon <= target.local_cap else None
