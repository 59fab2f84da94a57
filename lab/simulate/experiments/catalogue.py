"""The published experiments that can be repeated, by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from shuffledp.lab.simulate.experiments.key_value import key_value
from shuffledp.lab.simulate.experiments.projection import projection
from shuffledp.lab.simulate.experiments.rappor import exponential, states
from shuffledp.lab.simulate.table import Progress, Report

EXPERIMENTS: Final[Mapping[str, Callable[[int, Progress], Report]]] = {
    "rappor-states": states,
    "rappor-50-states": partial(states, n_states=50),
    "rappor-exponential": exponential,
    "projection": projection,
    "key-value": key_value,
}
