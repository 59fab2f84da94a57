"""Examples of every mechanism for numbers, and exact distributions of their answers."""

import dataclasses
from typing import Any, Final

from shuffledp.common.mechanisms.numeric.coordinate_sampling import MultiRphm
from shuffledp.common.mechanisms.numeric.number import NumberMechanism
from shuffledp.common.mechanisms.registry import MEAN_MECHANISMS
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.specs import NumberSpec
from tests.support.mechanisms import NONCE

ONE_NUMBER: Final[tuple[NumberMechanismName, ...]] = ("laplace", "duchi", "piecewise", "hybrid")
SEVERAL: Final[tuple[NumberMechanismName, ...]] = ("harmony", "mean-est", "multi-hm", "multi-rphm")
EVERY: Final = ONE_NUMBER + SEVERAL


def dimensions_of(name: NumberMechanismName) -> int:
    """Return the number of dimensions in the examples."""
    return 1 if name in ONE_NUMBER else 5


def spec_for(
    name: NumberMechanismName, local_epsilon: float = 1.0, *, dimensions: int | None = None
) -> NumberSpec:
    """Return a mechanism's specification for numbers in 0 .. 10."""
    d = dimensions_of(name) if dimensions is None else dimensions
    spec: NumberSpec = class_of(name).for_epsilon(d, local_epsilon).spec(0.0, 10.0)
    return spec


def class_of(name: NumberMechanismName) -> Any:
    """Return a mechanism's class."""
    return MEAN_MECHANISMS[name]


def built(spec: NumberSpec, dimensions: int | None = None) -> NumberMechanism:
    """Build a mechanism from its specification."""
    d = dimensions_of(spec.name) if dimensions is None else dimensions
    mechanism = class_of(spec.name).of_spec(spec, d)
    if isinstance(mechanism, MultiRphm):
        mechanism = dataclasses.replace(mechanism, nonce=NONCE)
    built: NumberMechanism = mechanism
    return built


def number_example(
    name: NumberMechanismName, local_epsilon: float = 1.0, *, dimensions: int | None = None
) -> NumberMechanism:
    """Build the example of a mechanism."""
    return built(spec_for(name, local_epsilon, dimensions=dimensions), dimensions)
