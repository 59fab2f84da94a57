"""What to know of a plan before collecting: limits of devices, too few users, dishonest ones."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Final

from shuffledp.common.messages.guarantee import delta_warnings, rounded_up
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.deploy.tasks.forecast import DEVICE_CAPS, device_totals
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.hierarchies import quantiles_beside
from shuffledp.lab.planning.planner import Plan
from shuffledp.lab.planning.question import usual_local_cap
from shuffledp.user_agent.policy import Claim

_UNUSED: Final = 0.9
"""Share of the target ε below which a plan's ε is said to be limited by the local cap."""


def with_warnings(plan: Plan) -> Plan:
    """Return a plan with its warnings, which name arguments as Python does."""
    warnings = (f"{each}." for each in delta_warnings(plan.target.delta, plan.target.n_users))
    return dataclasses.replace(plan, warnings=(*warnings, *_notes(plan)))


def _notes(plan: Plan) -> Iterator[str]:
    """Yield warnings about device limits, too few users, and errors that are not predicted."""
    target, design = plan.target, plan.best
    kind, claim = "coalition" if design.draft.relay else "local", Claim.of(design.task)
    names = (f"{kind}_epsilon_cap", f"total_{kind}_epsilon_cap", "total_central_epsilon_cap")
    caps = [DEVICE_CAPS[name] for name in names]
    central, total = device_totals(claim, target.rounds, DEVICE_CAPS["total_delta_cap"])
    costs = (getattr(claim, f"{kind}_epsilon"), total, central)
    if any(epsilon > cap for epsilon, cap in zip(costs, caps, strict=True)):
        yield (
            f"devices with default settings refuse this plan. Their limits are a {kind} epsilon of "
            "{:g} per answer and {:g} in total, and a central epsilon of {:g} in total; the plan "
            "needs {}, {} and {}, as devices add up claims."
        ).format(*caps, *map(rounded_up, costs))
    epsilon, cap = plan.central_guarantee.epsilon, target.local_cap
    unused = target.trust != "none" and epsilon < _UNUSED * target.central_epsilon
    # For other designs, binding constraints say so.
    if unused and math.isfinite(cap) and not design.kind.of_items:
        yield (
            f"the local cap of {cap:g} limits this plan, which needs a central epsilon of "
            f"{rounded_up(epsilon)} only. local_cap=math.inf or a larger one may have less error; "
            "devices must allow it."
        )
    error, (most, what) = math.sqrt(design.mse), design.kind.largest_error(target)
    if error > most:
        yield (
            f"too few users: the standard error of {error:.2g} exceeds {most:g}, {what}; raise "
            "n_users or central_epsilon."
        )
    if target.n_min == target.n_users:
        yield (
            f"with fewer than {target.n_min:,} users, nothing is released; plan for fewer with "
            "n_min."
        )
    yield from _notes_on_liars(design)
    if beside := quantiles_beside(target):
        yield f"{beside}."
    if design.floor:
        yield "the predicted error is a lower bound: decoding many candidates increases it."
    if any(shown.biased for shown in (design, *plan.runners_up)):
        yield (
            "an error marked + bias is of the noise alone: the bias of the projection depends on "
            "the values, and may be larger."
        )


def _notes_on_liars(design: Design) -> Iterator[str]:
    """Yield warnings about dishonest users and, for clusters, about all who depart from them."""
    target, plain = design.target, math.isinf(design.local_epsilon)
    if plain:
        two = design.draft.relay is not None
        noisy = math.isfinite(usual_local_cap(target.kind, target.rounds, target.shufflers))
        yield (
            f"{design.protocol} has no local noise: if the shuffler{'s' * two} and the analyzer "
            "pool what they saw, nothing is guaranteed."
            f"{' Where that matters, set local_cap.' * noisy}"
        )
    if not isinstance(design.unclaimed.dummies, ClusterDummies):
        if plain and not design.kind.of_items:
            yield (
                f"one dishonest submission can move {design.kind.error_of} as much as "
                f"{rounded_up(max(design.influence))} honest users can."
            )
        return
    up, down = map(rounded_up, design.influence)
    yield (
        f"one dishonest submission can add {up} users to a value, or take {down} away"
        f"{'; influence_cap sets a limit' * math.isinf(target.influence_cap)}."
    )
    if target.honest_fraction == 1:
        yield (
            "users who send no clusters, or tell the analyzer theirs, leave signed with fewer, "
            "and its guarantee soon fails; plan for them with honest_fraction."
        )
