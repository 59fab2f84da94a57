"""Parameters by the exact accountant: for each protocol the least error that keeps the target."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from analyzer.calibration import Checked
from analyzer.frontier import ProtocolName
from analyzer.local_parameters import LOCAL, local_parameters
from analyzer.parameters import USUAL_MESSAGES, Parameters, each_item
from analyzer.survey import best_of
from analyzer.wishes import Wishes
from common.accounting.coalitions import Terms
from common.accounting.item_noise_calibration import binomial_trials, geometric_spec
from common.dummy_spec import EXTRA_WEIGHT_SUM
from common.errors import PlanError
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.response_weights import ResponseWeights
from common.shuffler_spec import ShufflerSpec

HYBRID_LOCAL_EPSILON: Final = 8.0
"""Of hybrid where no cap was asked for."""
_HALVINGS: Final = 24


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
        return _ALONE[protocol](wishes)
    if protocol in {"murs", "hp-sdp"}:
        return _hashed_or_plain(protocol, wishes)
    return Parameters.of(_best(protocol, wishes).design)


def _best(protocol: str, wishes: Wishes) -> Checked:
    if protocol in {"mixdump", "od-hp", "fe1"} and math.isinf(wishes.messages_cap):
        wishes = dataclasses.replace(wishes, messages_cap=USUAL_MESSAGES)
    found = best_of(_drawn(protocol), wishes)
    if found is None:
        raise PlanError(
            f"{protocol} cannot keep a central epsilon of {wishes.central_epsilon:g} with at most "
            f"{wishes.messages_cap:g} messages a user and a local epsilon of at most "
            f"{wishes.local_cap:g}"
        )
    return found


def _drawn(protocol: str) -> ProtocolName:
    names: tuple[ProtocolName, ...] = ("sh", "murs", "mixdump", "puredump", "od-hp", "fe1")
    for name in names:
        if name == protocol:
            return name
    raise PlanError(f"there are no parameters for {protocol}")


def _hashed_or_plain(protocol: str, wishes: Wishes) -> Parameters:
    """Shuffled local hashing, or randomized response where that is better [WDX+20]."""
    plain, hashed = best_of("sh", wishes), best_of("murs", wishes)
    found = [each for each in (hashed, plain) if each is not None]
    if not found:
        raise PlanError(f"{protocol} cannot keep the target under the caps")
    return Parameters.of(min(found, key=lambda each: each.mse).design, protocol)


def _ddps(wishes: Wishes) -> Parameters:
    """Shuffled randomized response over a bit."""
    if wishes.domain_size != 2:  # noqa: PLR2004  # a bit
        raise PlanError(f"ddps collects a bit; the domain size is {wishes.domain_size}")
    return Parameters.of(_best("sh", wishes).design, "ddps")


def _aue(wishes: Wishes) -> Parameters:
    """Each item once more, with the least chance that keeps the target."""

    def at(extra_weight: int) -> Parameters:
        dummies = each_item(extra_weight, wishes)
        return Parameters(protocol="aue", local_epsilon=math.inf, dummies=dummies)

    def keeps(extra_weight: int) -> bool:
        return _keeps(at(extra_weight), wishes)

    return at(_least(keeps, EXTRA_WEIGHT_SUM - 1, "aue", wishes))


def _sbin(wishes: Wishes) -> Parameters:
    trials = binomial_trials(wishes.central_epsilon, wishes.delta, 1.0)
    spec = ShufflerSpec(law="binomial", trials=trials, most=trials)
    return Parameters(protocol="sbin", local_epsilon=math.inf, shuffler=spec)


def _sageo(wishes: Wishes) -> Parameters:
    spec = geometric_spec(wishes.central_epsilon, wishes.delta, 1.0)
    return Parameters(protocol="sageo", local_epsilon=math.inf, shuffler=spec)


def _hybrid(wishes: Wishes) -> Parameters:
    """Randomized response as sharp as the cap allows, and the least geometric noise beside it."""
    local = min(wishes.noise_cap, HYBRID_LOCAL_EPSILON if math.isinf(wishes.local_cap) else 20.0)
    low, high = wishes.central_epsilon, 64 * wishes.central_epsilon
    best: Parameters | None = None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high) if best is not None else low
        spec = geometric_spec(middle, wishes.delta, 1.0)
        found = Parameters(protocol="hybrid", local_epsilon=local, shuffler=spec)
        if _keeps(found, wishes):
            best, low = found, middle
        else:
            high = middle
    if best is None:
        raise PlanError("hybrid cannot keep the target")
    return best


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
        domain_size=wishes.domain_size,
        delta=wishes.delta,
        assumed_honest_fraction=wishes.honest_fraction,
    )
    release = terms.release(terms.crowd(wishes.n_min))
    return release.delta(wishes.central_epsilon) <= wishes.delta


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
    {"ddps": _ddps, "aue": _aue, "sbin": _sbin, "sageo": _sageo, "hybrid": _hybrid}
)
