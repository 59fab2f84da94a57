"""Parameters by the exact accountant: for each protocol the least error that keeps the target."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from common.accounting.guarantees import Terms
from common.errors import PlanError
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.weights import ResponseWeights
from common.task.dummy_spec import EXTRA_WEIGHT_SUM
from deploy.planning.frontier import NOISELESS, ProtocolName
from deploy.planning.parameters import (
    LOCAL,
    USUAL_MESSAGES,
    Parameters,
    each_item,
    local_parameters,
    within_caps,
)
from deploy.planning.protocol_search import best_of
from deploy.planning.requirements import Wishes
from deploy.planning.shuffler_noise import hybrid_design, keeps_promise, sageo_design, sbin_design


def tight_parameters(protocol: str, wishes: Wishes) -> Parameters:
    """
    Give the parameters with the least error that keep the target by the exact accountant.

    Raises:
        PlanError: The protocol cannot keep it under the caps.

    Cost: some three to ten evaluations of δ.
    """
    if protocol in LOCAL:
        return local_parameters(protocol, wishes)
    if protocol in _ALONE:
        return within_caps(_ALONE[protocol](wishes), wishes)
    return _best_of(protocol, wishes)


def _best_of(protocol: str, wishes: Wishes) -> Parameters:
    """
    Give the better of a protocol's ways: hashing, and plain items where that gains nothing.

    Where the number of messages is free, there are USUAL_MESSAGES at most.
    """
    ways = _WAYS[protocol]
    if math.isinf(wishes.messages_cap) and protocol != "puredump":
        wishes = dataclasses.replace(wishes, messages_cap=USUAL_MESSAGES)
    if not wishes.may_be_plain:
        ways = tuple(way for way in ways if way not in NOISELESS)
    for tried in (ways, _BARE.get(protocol, ())):
        found = [each for way in tried if (each := best_of(way, wishes)) is not None]
        if found:
            break
    else:
        raise PlanError(
            f"{protocol} cannot keep a central epsilon of {wishes.central_epsilon:g} with at most "
            f"{wishes.messages_cap:g} messages a user and a local epsilon of at most "
            f"{wishes.local_cap:g}"
        )
    return Parameters.of(min(found, key=lambda each: each.mse).design, protocol)


def _ddps(wishes: Wishes) -> Parameters:
    """Shuffled randomized response over a bit."""
    if wishes.domain_size != 2:  # noqa: PLR2004  # a bit
        raise PlanError(f"ddps collects a bit; the domain size is {wishes.domain_size}")
    return _best_of("ddps", wishes)


def _aue(wishes: Wishes) -> Parameters:
    """Each item once more, with the least chance that keeps the target."""

    def at(extra_weight: int) -> Parameters:
        dummies = each_item(extra_weight, wishes)
        return Parameters(protocol="aue", local_epsilon=math.inf, dummies=dummies)

    def keeps(extra_weight: int) -> bool:
        return _keeps(at(extra_weight), wishes)

    # The noise of an item is widest at a chance of one half.
    return at(_least(keeps, EXTRA_WEIGHT_SUM // 2, "aue", wishes))


def _keeps(parameters: Parameters, wishes: Wishes) -> bool:
    """Ask the exact accountant."""
    weights = ResponseWeights.for_epsilon(parameters.local_epsilon)
    terms = Terms(
        reduction=MatchCountReduction.for_weights(
            answers=wishes.domain_size, weights=weights, hashed=False
        ),
        local_epsilon=parameters.local_epsilon,
        dummies=parameters.dummies,
        shuffler=parameters.shuffler,
        delta=wishes.delta,
        assumed_honest_fraction=wishes.honest_fraction,
        rounds=wishes.rounds,
    )
    return keeps_promise(terms, wishes)


def _least(keeps: Callable[[int], bool], most: int, protocol: str, wishes: Wishes) -> int:
    """Find the least whole number that keeps the target, to a thousandth."""
    if not keeps(most):
        raise PlanError(
            f"{protocol} cannot keep a central epsilon of {wishes.central_epsilon:g} with "
            f"{wishes.honest} users"
        )
    high = most
    while high > 1 and keeps(high // 2):
        high //= 2
    low = high // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle
    return high


_ALONE: Final[Mapping[str, Callable[[Wishes], Parameters]]] = MappingProxyType(
    {
        "ddps": _ddps,
        "aue": _aue,
        "sbin": lambda wishes: Parameters.of(sbin_design(wishes)),
        "sageo": lambda wishes: Parameters.of(sageo_design(wishes)),
        "hybrid": lambda wishes: Parameters.of(hybrid_design(wishes)),
    }
)

_WAYS: Final[Mapping[str, tuple[ProtocolName, ...]]] = MappingProxyType(
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
"""What the planner draws each protocol as; it runs on plain items where that has less error."""
_BARE: Final[Mapping[str, tuple[ProtocolName, ...]]] = MappingProxyType(
    {"mixdump": ("sh",), "od-hp": ("murs", "sh")}
)
"""What is left of a protocol where there may be no dummies, or hardly any are needed."""
