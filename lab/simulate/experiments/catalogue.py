"""The published experiments that can be repeated, by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from lab.simulate.experiments.key_value import key_value
from lab.simulate.experiments.projection import projection
from lab.simulate.experiments.rappor import exponential, states
from lab.simulate.table import Progress, Report

EXPERIMENTS: Final[Mapping[str, Callable[[int, Progress], Report]]] = {
    "rappor-states": states,
    "rappor-50-states": partial(states, n_states=50),
    "rappor-exponential": exponential,
    "projection": projection,
    "key-value": key_value,
}
