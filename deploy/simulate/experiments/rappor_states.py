"""
RAPPOR of confirmed COVID-19 cases by US state, one report a case, after [HZ22].

The paper's 26 states, its parameters and its figures are not in the text that could be read. Here
it is the first 26 states by alphabet (17,048,206 cases until 18 April 2021), or all 50, and three
settings of this project's own. As the paper proposes it, only the infected report, which tells of
everybody who does not report that they are not: a collection in earnest needs a word for "none".
"""

from fractions import Fraction
from typing import Final

from common.errors import TaskError
from deploy.datasets.catalogue import COVID_US_STATES, load
from deploy.simulate.experiments.rappor_comparison import (
    Letters,
    Population,
    RapporComparison,
    compare,
)

_NO_STATES: Final = frozenset(
    {
        "American Samoa",
        "Diamond Princess",
        "District of Columbia",
        "Grand Princess",
        "Guam",
        "Northern Mariana Islands",
        "Puerto Rico",
        "Virgin Islands",
    }
)
"""Rows of the data set that are territories, a district, or ships."""
STATES: Final = 50
FIRST_STATES: Final = 26

_HALF: Final = Fraction(1, 2)
_THREE_QUARTERS: Final = Fraction(3, 4)
SETTINGS: Final = (
    Letters(k=32, h=2, m=16, f=_HALF, p=_HALF, q=_THREE_QUARTERS),
    Letters(k=32, h=1, m=64, f=_HALF, p=Fraction(1, 4), q=_THREE_QUARTERS),
    Letters(k=128, h=2, m=8, f=_THREE_QUARTERS, p=_HALF, q=_THREE_QUARTERS),
)


def population(n_states: int = FIRST_STATES) -> Population:
    """
    Give the first states by alphabet, and their cases.

    Raises:
        TaskError: n_states is not 1 .. 50.
    """
    if not 1 <= n_states <= STATES:
        raise TaskError(f"n_states is {n_states}; it must lie between 1 and {STATES}")
    data = load(COVID_US_STATES)
    rows = [row for row, label in enumerate(data.labels) if label not in _NO_STATES]
    first = sorted(rows, key=lambda row: data.labels[row])[:n_states]
    return Population(
        title=f"COVID-19 cases until 18 April 2021 in {n_states} US states",
        candidates=tuple(data.labels[row] for row in first),
        people=data.counts[first],
    )


def run(
    seed: int, *, n_states: int = FIRST_STATES, settings: tuple[Letters, ...] = SETTINGS
) -> RapporComparison:
    """
    Collect a report of every case under each setting, and decode.

    Args:
        seed: Of all randomness.
        n_states: The first so many by alphabet, 1 .. 50.
        settings: RAPPOR's.

    Raises:
        TaskError: n_states or a setting is out of range.

    Cost: a tenth of a second.
    """
    return compare(population(n_states), settings, seed)
