"""Every family of this folder, by mechanism, and the distributions of shufflers' dummies."""

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import stats

from shuffledp.audit.families.family import Families, Family, ItemFamily, NotCoveredError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.task.shuffler_spec import ItemNoise
from shuffledp.common.task.task import Task

_FOLDER: Final = Path(__file__).parent
FAMILIES: Final[Families] = {
    mechanism: family
    for module in pkgutil.iter_modules([str(_FOLDER)])
    if module.name not in {"references", "family"}
    for mechanism, family in import_module(f"{__package__}.{module.name}").FAMILIES.items()
}


def family_of(task: Task) -> Family[Any]:
    """Return the reference for a task's mechanism; one without figures if it has none."""
    mechanism = randomizer_of(task)
    return FAMILIES.get(type(mechanism), ItemFamily)(task, mechanism)


_CHANCES: Final[Mapping[str, Callable[[Any], Vector]]] = {
    "none": lambda _: np.ones(1),
    "binomial": lambda noise: stats.binom.pmf(np.arange(noise.most + 1), noise.trials, 0.5),
    "geometric": lambda noise: noise.probabilities(),
}
"""The references, by the distribution of the dummies; the accountant uses the geometric one."""


def noise_chances(noise: ItemNoise) -> Vector:
    """Return the probabilities of 0, 1, …, `most` dummies; NotCoveredError without a reference."""
    if noise.distribution not in _CHANCES:
        raise NotCoveredError(f"shufflers with {noise.distribution} dummies")
    return _CHANCES[noise.distribution](noise)
