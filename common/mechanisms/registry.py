"""The mechanisms by name, and those of tasks."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from shuffledp.common.mechanisms.base import Mechanism, Randomizer, check_report_bytes
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.hashing.string_hashing import StringHashing
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric.coded_number import Duchi
from shuffledp.common.mechanisms.numeric.coordinate_sampling import Harmony, MultiHm, MultiRphm
from shuffledp.common.mechanisms.numeric.digits import Digits
from shuffledp.common.mechanisms.numeric.laplace import Laplace
from shuffledp.common.mechanisms.numeric.mean_est import MeanEst
from shuffledp.common.mechanisms.numeric.number import MeanMechanism, NumberMechanism
from shuffledp.common.mechanisms.numeric.piecewise import Hybrid, Piecewise
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.mechanisms.signed import Signed
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.unary import OptimizedUnary, SymmetricUnary
from shuffledp.common.protocols import DummyDistribution, Kind, MechanismName
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import OpenSpec, RapporSpec
from shuffledp.common.task.task import Task

ITEM_MECHANISMS: Final[Mapping[MechanismName, type[Mechanism]]] = MappingProxyType(
    {
        "grr": Grr,
        "warner": Grr,
        "symmetric-unary": SymmetricUnary,
        "optimized-unary": OptimizedUnary,
        "local-hashing": LocalHashing,
        "string-hashing": StringHashing,
        "square-wave": SquareWave,
        "hierarchy": Hierarchy,
    }
)

_BY_DUMMIES: Final[Mapping[DummyDistribution, type[Mechanism]]] = {"clusters": Signed}
"""Mechanisms that replace the named one, by the distribution of dummies."""

_OF_NUMBERS: Final[tuple[type[NumberMechanism], ...]] = (
    *(Laplace, Duchi, Piecewise, Hybrid),
    *(Harmony, MeanEst, MultiHm, MultiRphm),
)
MEAN_MECHANISMS: Final[Mapping[str, type[MeanMechanism]]] = MappingProxyType(
    {"digits": Digits, **{each.NAME: each for each in _OF_NUMBERS}}
)
"""All mechanisms for means."""


def mechanism_of(task: Task) -> Mechanism:
    """Build the mechanism of a task that collects items; raise TaskError if the spec is wrong."""
    plain = ITEM_MECHANISMS[task.item_mechanism.name]
    mechanism = _BY_DUMMIES.get(task.dummies.distribution, plain).of(task)
    check_report_bytes(task.mechanism, mechanism.report_dtype)
    return mechanism


def rappor_of(task: Task) -> Rappor:
    """Build the mechanism of a task that collects texts; raise TaskError if the spec is wrong."""
    return Rappor.of(spec_as(task.mechanism, RapporSpec), task.labels)


def mean_mechanism_of(task: Task) -> MeanMechanism:
    """Build the mechanism of a task that collects numbers; raise TaskError if the spec is wrong."""
    return MEAN_MECHANISMS[task.mechanism.name].of(task)


def prefix_hashing_of(task: Task) -> PrefixHashing:
    """Build the mechanism of a task for open dictionaries; raise TaskError if the spec is wrong."""
    return PrefixHashing.of(spec_as(task.mechanism, OpenSpec))


def randomizer_of(task: Task) -> Randomizer:
    """Build a task's mechanism for any kind of value; raise TaskError if the spec is wrong."""
    return _BUILDERS[task.kind](task)


_BUILDERS: Final[Mapping[Kind, Callable[[Task], Randomizer]]] = {
    "categorical": mechanism_of,
    "ordered": mechanism_of,
    "string": rappor_of,
    "open": prefix_hashing_of,
    "mean": mean_mechanism_of,
    "vector": mean_mechanism_of,
    "key-value": PrivKv.of,
    "table": Tables.of,
}
