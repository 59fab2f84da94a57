"""What a protocol runs with if it is to reach a target: by its own published bound, or by the tight
accountant. Run by whoever compares protocols, and by the planner. Pure.
"""

import math
from dataclasses import dataclass
from typing import Final

from common.errors import PlanError
from common.protocols import PROTOCOLS
from common.task.draft import TaskDraft
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, MAX_DUMMIES, NO_DUMMIES, DummySpec
from common.task.shuffler_spec import PERMUTES, ShufflerSpec
from common.task.task import MAX_LOCAL_EPSILON
from deploy.planning.design import Design
from deploy.planning.requirements import Wishes

USUAL_MESSAGES: Final = 5.0
"""Messages a user where a protocol lets them be chosen and no cap was asked for."""
_NEVER: Final = 1e-40
"""Chance, over a whole batch, that a law of dummies is cut."""
_ROUNDING: Final = 1e-6
"""By which messages may be above a cap: weights are rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """A protocol's parameters: what a draft needs of them."""

    protocol: str
    local_epsilon: float
    buckets: int = 0
    """For hashing; 0 for plain items."""
    dummies: DummySpec = NO_DUMMIES
    shuffler: ShufflerSpec = PERMUTES
    note: str = ""
    """What a reader must know of how they came about."""

    @classmethod
    def of(cls, design: Design, protocol: str | None = None) -> "Parameters":
        """Take them from a planner's design, perhaps under another name."""
        return cls(
            protocol=protocol or design.protocol,
            local_epsilon=design.local_epsilon,
            buckets=design.answers if design.hashed else 0,
            dummies=design.dummy_spec,
            shuffler=design.shuffler,
        )

    def draft(
        self,
        wishes: Wishes,
        *,
        shuffler_key: bytes,
        deadline: int,
        labels: tuple[str, ...] = (),
    ) -> TaskDraft:
        """Give the draft of a task with these parameters, under the wishes they were found for."""
        return TaskDraft(
            protocol=self.protocol,
            domain_size=wishes.domain_size,
            labels=labels,
            local_epsilon=self.local_epsilon,
            buckets=self.buckets,
            dummies=self.dummies,
            shuffler=self.shuffler,
            delta=wishes.delta,
            n_min=wishes.n_min,
            target_size=wishes.n_users,
            assumed_honest_fraction=wishes.honest_fraction,
            deadline=deadline,
            shuffler_key=shuffler_key,
        )


def within_caps(parameters: Parameters, wishes: Wishes) -> Parameters:
    """
    Give the parameters back if they keep to the caps.

    Raises:
        PlanError: Reports carry no noise where a local ε is asked for, or there are more messages
            than may be.
    """
    if math.isinf(parameters.local_epsilon) and not wishes.may_be_plain:
        raise PlanError(
            f"{parameters.protocol} reports without local noise; the local cap is "
            f"{wishes.noise_cap:g}"
        )
    messages = 1 + parameters.dummies.expected_per_user
    if messages > wishes.messages_cap + _ROUNDING:
        raise PlanError(
            f"{parameters.protocol} would take {messages:.4g} messages a user; the messages cap "
            f"is {wishes.messages_cap:g}"
        )
    return parameters


def each_item(extra_weight: int, wishes: Wishes) -> DummySpec:
    """
    Give the law of a dummy for each item, cut where no batch ever comes.

    Raises:
        PlanError: No envelope holds so many.
    """
    chance = extra_weight / EXTRA_WEIGHT_SUM
    mean = wishes.domain_size * chance
    log = math.log(wishes.n_users / _NEVER)
    # P(X ≥ mean + t) ≤ exp(-t² / (2·(variance + t/3))): Bernstein's inequality, turned round.
    reach = log / 3 + math.sqrt(log**2 / 9 + 2 * mean * (1 - chance) * log)
    most = min(math.ceil(mean + reach), wishes.domain_size)
    if most > MAX_DUMMIES:
        raise PlanError(f"aue would take {most} dummies a user; at most {MAX_DUMMIES} are carried")
    return DummySpec(
        law="each-item",
        per_user=0,
        trials=wishes.domain_size,
        extra_weight=extra_weight,
        most=most,
    )


LOCAL: Final = frozenset(name for name, protocol in PROTOCOLS.items() if not protocol.amplified)
_CAPPED: Final = "more than this local epsilon is not offered"


def local_parameters(protocol: str, wishes: Wishes) -> Parameters:
    """Give the parameters; the cap on the local ε and the largest one that tasks may have bind."""
    wanted = min(wishes.central_epsilon, wishes.local_cap)
    epsilon = min(wanted, MAX_LOCAL_EPSILON)
    return Parameters(
        protocol=protocol,
        local_epsilon=epsilon,
        note=_CAPPED if epsilon < wanted else "",
    )
