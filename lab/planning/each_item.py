"""The protocol `aue`: users add each item as a dummy, with the least chance. Pure."""

import math
from typing import Final

from shuffledp.common.errors import PlanError
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM, MAX_DUMMIES
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.lab.planning.design import Design, excess_of, least_noisy
from shuffledp.lab.planning.protocol_family import ProtocolFamily
from shuffledp.lab.planning.requirements import Requirements

_CUT_PROBABILITY: Final = 1e-40
"""Largest probability that any user in a batch needs more dummies than the maximum."""
_SLACK: Final = 1e-3
"""The search ends when μ is within this share below its target, which costs .2 % of the error."""
_MAX_STEP: Final = 1.5
"""Largest step in ln μ before the target is bracketed."""


class EachItem(ProtocolFamily):
    """True items, and a dummy of each item with a small probability."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """Return the design with the least dummy probability, to within 0.2 %."""
        # An item's noise is largest at probability one half; a paper's bound may count on more.
        most = EXTRA_WEIGHT_SUM // 2 if target.accounting == "tight" else EXTRA_WEIGHT_SUM - 1

        def design_at(level: float) -> Design | None:
            if level < 0:
                return None
            weight = max(1, math.ceil(most * math.exp(-2 * level)))
            return Design.of(protocol, target, dummies=each_item_dummies(weight, target))

        return least_noisy(target, protocol, design_at, excess_of, slack=_SLACK, max_step=_MAX_STEP)


def each_item_dummies(extra_weight: int, target: Requirements) -> ItemDummies:
    """
    Return the distribution that adds each item as a dummy with probability extra_weight / 2^32.

    Raises PlanError if a user may need more than MAX_DUMMIES dummies.
    """
    chance = extra_weight / EXTRA_WEIGHT_SUM
    mean = target.domain_size * chance
    log = math.log(target.n_users / _CUT_PROBABILITY)
    # P(X ≥ mean + t) ≤ exp(-t² / (2·(variance + t/3))): Bernstein's inequality, solved for t.
    excess = log / 3 + math.sqrt(log**2 / 9 + 2 * mean * (1 - chance) * log)
    most = min(math.ceil(mean + excess), target.domain_size)
    if most > MAX_DUMMIES:
        raise PlanError(f"aue needs up to {most} dummies per user; the limit is {MAX_DUMMIES}")
    return ItemDummies(trials=target.domain_size, extra_weight=extra_weight, most=most)
