"""Designs by the exact accountant: the least error that keeps the target. Pure."""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from common.errors import PlanError
from common.task.dummy_spec import EXTRA_WEIGHT_SUM
from deploy.planning.design import (
    NOT_AMPLIFIED,
    USUAL_MESSAGES,
    Design,
    each_item_dummies,
    local_design,
    make_design,
    within_caps,
)
from deploy.planning.frontier import NOISELESS, ProtocolName
from deploy.planning.protocol_search import best_of
from deploy.planning.requirements import Requirements
from deploy.planning.shuffler_noise import SHUFFLER_PROTOCOLS, keeps_guarantee, shuffler_design

_SEARCHED_AS: Final[Mapping[str, tuple[ProtocolName, ...]]] = MappingProxyType(
    {
        "sh": ("sh",),
        "murs": ("murs", "sh"),
        "hp-sdp": ("murs", "sh"),
        "ddps": ("sh",),
        "puredump": ("puredump",),
        "mixdump": ("mixdump",),
        "od-hp": ("od-hp", "mixdump"),
        "fe1": ("fe1", "puredump"),
    }
)
"""The planner's protocols that each is searched as: plain items where hashing gains nothing."""
_WITHOUT_DUMMIES: Final[Mapping[str, tuple[ProtocolName, ...]]] = MappingProxyType(
    {"mixdump": ("sh",), "od-hp": ("murs", "sh")}
)
"""The same where no dummies are allowed, or hardly any are needed."""


def tight_design(protocol: str, wanted: Requirements) -> Design:
    """
    Return the design with the least error that keeps the target by the exact accountant.

    Raises:
        PlanError: The protocol cannot keep it under the caps.

    Cost: some three to ten evaluations of δ.
    """
    if protocol in NOT_AMPLIFIED:
        return local_design(protocol, wanted)
    if protocol in SHUFFLER_PROTOCOLS:
        return within_caps(shuffler_design(protocol, wanted), wanted)
    if protocol == "aue":
        return within_caps(_aue(wanted), wanted)
    if protocol == "ddps" and wanted.domain_size != 2:  # noqa: PLR2004  # a bit
        raise PlanError(f"ddps collects a bit; the domain size is {wanted.domain_size}")
    return _searched(protocol, wanted)


def _searched(protocol: str, wanted: Requirements) -> Design:
    """Return the better of hashed and plain items, with USUAL_MESSAGES at most without a cap."""
    options = _SEARCHED_AS[protocol]
    if math.isinf(wanted.messages_cap) and protocol != "puredump":
        wanted = dataclasses.replace(wanted, messages_cap=USUAL_MESSAGES)
    if not wanted.may_be_plain:
        options = tuple(name for name in options if name not in NOISELESS)
    for names in (options, _WITHOUT_DUMMIES.get(protocol, ())):
        found = [each for name in names if (each := best_of(name, wanted)) is not None]
        if found:
            best = min(found, key=lambda each: each.mse).design
            return dataclasses.replace(best, protocol=protocol)
    raise PlanError(
        f"{protocol} cannot keep a central epsilon of {wanted.central_epsilon:g} with at most "
        f"{wanted.messages_cap:g} messages a user and a local epsilon of at most "
        f"{wanted.local_cap:g}"
    )


def _aue(wanted: Requirements) -> Design:
    """Each item once more, with the least chance that keeps the target, to a thousandth."""

    def at(extra_weight: int) -> Design:
        return make_design("aue", wanted, dummies=each_item_dummies(extra_weight, wanted))

    def keeps(extra_weight: int) -> bool:
        return keeps_guarantee(at(extra_weight).terms(wanted), wanted)

    high = EXTRA_WEIGHT_SUM // 2  # the noise of an item is widest at a chance of one half
    if not keeps(high):
        raise PlanError(
            f"aue cannot keep a central epsilon of {wanted.central_epsilon:g} with "
            f"{wanted.honest} users"
        )
    while high > 1 and keeps(high // 2):
        high //= 2
    low = high // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle
    return at(high)
