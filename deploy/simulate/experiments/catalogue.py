"""The published experiments that can be repeated, by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from deploy.simulate.experiments.key_value import key_value
from deploy.simulate.experiments.projection import projection
from deploy.simulate.experiments.rappor import exponential, states
from deploy.simulate.table import Progress, Report

EXPERIMENTS: Final[Mapping[str, Callable[[int, Progress], Report]]] = {
    "rappor-states": states,
    "rappor-50-states": partial(states, n_states=50),
    "rappor-exponential": exponential,
    "projection": projection,
    "key-value": key_value,
}
