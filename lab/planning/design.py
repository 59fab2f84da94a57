"""Designs: drafts with the tasks that they make and their predicted errors. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

from shuffledp.analyzer.task_builder import with_claims, without_claim
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import PlanError
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.protocols import ProtocolRow
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.lab.planning import predictions
from shuffledp.lab.planning.central_gaussian import gaussian_mse
from shuffledp.lab.planning.requirements import UNUSED_KEY, Requirements

_ROUNDING: Final = 1e-6
"""Messages per user by which a design may exceed the cap, because weights are rounded up."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A draft that meets requirements, the task that it makes, and the predicted error."""

    draft: TaskDraft
    """With a placeholder key and a placeholder deadline."""
    target: Requirements
    note: str = ""
    """A remark on the parameters for the reader; may be empty."""

    @classmethod
    def of(
        cls,
        protocol: str,
        target: Requirements,
        *,
        local_epsilon: float = math.inf,
        **fields: Any,  # noqa: ANN401  # of a draft
    ) -> Self:
        """Return the design whose draft has these fields, by default without local noise."""
        return cls(
            draft=target.draft(protocol, local_epsilon=local_epsilon, **fields), target=target
        )

    @cached_property
    def unclaimed(self) -> Task:
        """The task before its claim; raises TaskError if the draft breaks a rule."""
        noiseless = math.isinf(self.draft.local_epsilon)  # its budget follows from the plan
        draft = replace(self.draft, population="") if noiseless else self.draft
        return without_claim(draft, analyzer_key=UNUSED_KEY, nonce=bytes(32))

    @cached_property
    def task(self) -> Task:
        """The task with its claims; raises TaskError if no finite ε can be claimed."""
        return with_claims(self.unclaimed)

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return self.draft.protocol

    @property
    def row(self) -> ProtocolRow:
        """The protocol."""
        return self.unclaimed.protocol_row

    @property
    def kind(self) -> predictions.PlannedKind:
        """The predictions for the kind of value that is planned."""
        return predictions.PLANNED_KINDS[self.target.kind]

    @property
    def local_epsilon(self) -> float:
        """Infinite for reports without local noise."""
        return self.unclaimed.local_epsilon

    @property
    def messages_per_user(self) -> float:
        """Expected reports of one user, dummies and the null reports of clusters included."""
        return predictions.messages_of(self.unclaimed)

    @property
    def bytes_per_user(self) -> int:
        """Average length of a submission's envelope in bytes, padding included; rounded."""
        return round(self.unclaimed.expected_envelope_bytes)

    @cached_property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters from which guarantees are computed."""
        return replace(PrivacyParameters.of(self.unclaimed), rounds=self.target.rounds)

    @cached_property
    def influence(self) -> tuple[float, float]:
        """Users by which one dishonest submission can raise a count, and lower another's."""
        return randomizer_of(self.unclaimed).influence(self.unclaimed.lengths[-1])

    @cached_property
    def mse(self) -> float:
        """The predicted mean squared error; of buckets, that of the prefix that counts."""
        return self.target.prefix_error(self.kind.errors(self.unclaimed, self.target.n_users))

    @property
    def ratio_to_central_gaussian(self) -> float:
        """The predicted mean squared error divided by `gaussian_mse`."""
        return self.mse / gaussian_mse(self.target)

    @property
    def biased(self) -> bool:
        """Whether a projection adds a bias that `mse` does not include."""
        return self.row.biased

    @property
    def floor(self) -> bool:
        """Whether `mse` is only a lower bound, because it omits errors that decoding adds."""
        return self.kind.is_floor(self.unclaimed)

    @cached_property
    def figures(self) -> Mapping[str, float]:
        """Further figures, for programs; none for most kinds."""
        return self.kind.figures(self.unclaimed, self.target.n_users)

    def head_errors(self) -> list[float]:
        """Return the predicted squared errors of the most frequent items, the target's `head`."""
        head = self.target.head
        errors = predictions.share_variances(self.unclaimed, self.target.n_users, head)
        return list(map(float, errors[: len(head)]))


def within_caps(design: Design) -> Design:
    """Return the design; raise PlanError if it exceeds a cap."""
    protocol, target = design.protocol, design.target
    if math.isfinite(target.influence_cap) and max(design.influence) > target.influence_cap:
        raise PlanError(
            f"{protocol} has {max(design.influence):.4g} users moved by one submission; the "
            f"influence cap is {target.influence_cap:g}"
        )
    if (size := design.bytes_per_user) > target.bytes_cap:
        raise PlanError(
            f"{protocol} has {size:,} bytes per user; the bytes cap is {target.bytes_cap:g}"
        )
    if (messages := design.messages_per_user) > target.messages_cap + _ROUNDING:
        raise PlanError(
            f"{protocol} needs {messages:.4g} messages per user; the messages cap is "
            f"{target.messages_cap:g}{design.kind.messages_by}"
        )
    return design
