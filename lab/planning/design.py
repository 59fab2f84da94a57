"""
Designs: drafts with the tasks that they make, their predicted errors, and their privacy. Pure.

The distance of a design from its privacy target is by exact accounting or by a paper's bound. Only
here does the planner ask for a design's ε: every search moves noise until the distance is nearly 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

from shuffledp.analyzer.task_builder import with_claims, without_claim
from shuffledp.common.accounting.guarantees import central_epsilon
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.accounting.published import PUBLISHED, BoundSetting
from shuffledp.common.errors import BoundRangeError, PlanError
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.protocols import ProtocolRow
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.lab.planning import predictions
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MARGIN, T, least_noise, log_excess
from shuffledp.lab.planning.central_mechanisms import gaussian_mse
from shuffledp.lab.planning.requirements import UNUSED_KEY, Requirements

_ROUNDING: Final = 1e-6
"""Messages per user by which a design may exceed the cap, because weights are rounded up."""
_SEARCH_OF_BOUNDS: Final = {"slack": 1e-5, "most": 60}
"""Of published bounds, whose evaluation costs a millisecond."""


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
        draft = target.draft(protocol, local_epsilon=local_epsilon, **fields)
        return cls(draft=draft, target=target)

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


def excess_of(design: Design) -> float:
    """
    Return about ln(μ / target μ) of a design, at most 0 exactly if it meets the target.

    Raises AccountingError if no formula covers the design. Cost: one evaluation of δ, or for
    several rounds a composition.
    """
    published = design.target.accounting == "published"
    return _published_excess(design) if published else _exact_excess(design)


def meets(design: Design) -> bool:
    """Return whether a design meets the target, if only by the claim that its task rounds."""
    target = design.target
    if excess_of(design) <= 0:
        return True
    exact = target.accounting == "tight" and target.rounds == 1
    return exact and design.task.central_epsilon <= target.central_epsilon


def _exact_excess(design: Design) -> float:
    """Return `excess_of` by the accountant, with room for rounding claims."""
    parameters, target = design.parameters, design.target
    if parameters.local_epsilon_of_all_rounds <= target.central_epsilon:
        return -math.inf
    release = parameters.release_of(target.n_min, target.honest, target.honest)
    epsilon = target.central_epsilon / CLAIM_ROOM
    if target.rounds == 1:
        found = (epsilon, release.curve((epsilon,))(epsilon))
        return log_excess(found, (epsilon, MARGIN * target.delta))
    found = (central_epsilon(parameters, release), target.delta)
    return log_excess(found, (epsilon, target.delta))


def _published_excess(design: Design) -> float:
    """Return ln(ε / target ε) by the paper's bound; infinite out of its range: more noise helps."""
    _, bound = PUBLISHED[design.row.published_bound or ""]
    try:
        found = bound(BoundSetting.of(design.parameters, design.target.n_min))
    except BoundRangeError:
        return math.inf
    return math.log(found / design.target.central_epsilon)


def least_noisy(
    target: Requirements,
    name: str,
    found_at: Callable[[float], T | None],
    excess: Callable[[T], float],
    **search: Any,  # noqa: ANN401  # further arguments of `least_noise`
) -> T:
    """
    Return the least noisy that meets the target; raise PlanError about `name` without one.

    `found_at` maps a level to a design, or to None if so much noise is impossible; `excess` states
    a design's distance from the target. See `calibration.least_noise`.
    """

    def attempt(level: float) -> tuple[T | None, float]:
        found = found_at(level)
        return found, -math.inf if found is None else excess(found)

    search = {"start": 0.0} | search
    if target.accounting == "published":
        search |= _SEARCH_OF_BOUNDS
    best = least_noise(attempt, **search)
    if best is None:
        coalition = f" and a coalition epsilon of {target.coalition_epsilon:g}"
        raise PlanError(
            f"{name} cannot meet a central epsilon of {target.central_epsilon:g}"
            f"{coalition * (target.shufflers > 1)} with {target.honest} honest users"
        )
    return best[0]
