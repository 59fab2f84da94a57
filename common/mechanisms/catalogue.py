"""From what a task says of its mechanism to the mechanism, and from a wish to what a task says."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from common.errors import TaskError
from common.mechanism_spec import MechanismSpec
from common.mechanisms.grr import Grr
from common.mechanisms.local_hashing import LocalHashing
from common.mechanisms.mechanism import Mechanism
from common.mechanisms.square_wave import SquareWave
from common.mechanisms.string_hashing import StringHashing
from common.mechanisms.unary import OptimizedUnary, SymmetricUnary
from common.mechanisms.wanted import Wanted
from common.mechanisms.warner import Warner
from common.protocols import MechanismName
from common.task import Task


class Catalogued(Protocol):
    """A mechanism's way into a task, and out of it again."""

    @classmethod
    def specify(cls, wanted: Wanted) -> MechanismSpec:
        """Work out the integers. Run by the analyzer."""

    @classmethod
    def of(cls, task: Task) -> Mechanism:
        """Build the mechanism from its integers. Run by the user agent and by the analyzer."""


_CATALOGUE: Final[Mapping[MechanismName, type[Catalogued]]] = MappingProxyType(
    {
        "grr": Grr,
        "warner": Warner,
        "symmetric-unary": SymmetricUnary,
        "optimized-unary": OptimizedUnary,
        "local-hashing": LocalHashing,
        "string-hashing": StringHashing,
        "square-wave": SquareWave,
    }
)


def specify(
    name: MechanismName, *, domain_size: int, buckets: int, local_epsilon: float
) -> MechanismSpec:
    """
    Work out the integers of a mechanism. Run by the analyzer when it drafts a task.

    Args:
        name: Of the mechanism.
        domain_size: Items, at least 2.
        buckets: For hashing; every other mechanism knows its answers from the items.
        local_epsilon: Above 0 and at most 20, or infinite for reports without noise.

    Raises:
        TaskError: local_epsilon is out of range, or the mechanism does not fit the domain.
    """
    wanted = Wanted(
        name=name, domain_size=domain_size, buckets=buckets, local_epsilon=local_epsilon
    )
    return _CATALOGUE[name].specify(wanted)


def mechanism_of(task: Task) -> Mechanism:
    """
    Build a task's mechanism. Run by the user agent and by the analyzer.

    Raises:
        TaskError: The task's integers do not describe a mechanism that this program knows.
    """
    mechanism = _CATALOGUE[task.mechanism.name].of(task)
    if mechanism.report_dtype.itemsize != task.mechanism.report_bytes:
        raise TaskError(
            f"report_bytes is {task.mechanism.report_bytes}; a report of this mechanism has "
            f"{mechanism.report_dtype.itemsize}"
        )
    return mechanism
