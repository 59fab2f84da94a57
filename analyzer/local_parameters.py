"""Parameters of the protocols that rely on no shuffler: the target is their local ε. Pure."""

from typing import Final

from analyzer.parameters import Parameters
from analyzer.wishes import Wishes
from common.mechanisms.local_hashing import optimal_buckets
from common.protocols import PROTOCOLS
from common.task import MAX_LOCAL_EPSILON

LOCAL: Final = frozenset(name for name, protocol in PROTOCOLS.items() if not protocol.amplified)
_CAPPED: Final = "more than this local epsilon is not offered"


def local_parameters(protocol: str, wishes: Wishes) -> Parameters:
    """Give the parameters; the cap on the local ε and the largest one that tasks may have bind."""
    wanted = min(wishes.central_epsilon, wishes.local_cap)
    epsilon = min(wanted, MAX_LOCAL_EPSILON)
    return Parameters(
        protocol=protocol,
        local_epsilon=epsilon,
        buckets=_buckets(protocol, epsilon, wishes.domain_size),
        note=_CAPPED if epsilon < wanted else "",
    )


def _buckets(protocol: str, epsilon: float, domain_size: int) -> int:
    if protocol == "ldp-blh":
        return 2
    if protocol in {"ldp-olh", "ldp-olh-strings"}:
        return optimal_buckets(epsilon, domain_size)
    return 0
