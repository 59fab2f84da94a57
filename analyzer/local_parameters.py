"""Parameters of the protocols that rely on no shuffler: the target is their local ε. Pure."""

from typing import Final

from analyzer.parameters import Parameters
from analyzer.wishes import Wishes
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
        note=_CAPPED if epsilon < wanted else "",
    )
