"""Handmade rows of a simulation."""

from types import MappingProxyType
from typing import Final

import numpy as np

from shuffledp.deploy.datasets.sources import Dataset
from shuffledp.lab.planning.central_mechanisms import CentralErrors
from shuffledp.lab.planning.requirements import Accounting
from shuffledp.lab.simulate.accuracy import ByValue, Repeat
from shuffledp.lab.simulate.populations import Population
from shuffledp.lab.simulate.sweep import SweepRow
from tests.support.tasks import published

TASK: Final = published().task
"""The rows state its claims."""
PEOPLE: Final = Population.of_items(
    Dataset(name="made", title="made", labels=("a", "b", "c"), counts=np.array([5, 3, 2])), 10
)
_ERRORS: Final = (
    *("mse", "mse_refined", "mse_top50", "mse_top50_refined"),
    *("max_error", "relative_error", "regret"),
)
_SHARES: Final = np.array([0.5, 0.3, 0.2])


def row(
    protocol: str,
    epsilon: float,
    mses: tuple[float, ...] = (),
    accounting: Accounting = "tight",
    *,
    reference: CentralErrors = MappingProxyType({}),
    **changes: str,
) -> SweepRow:
    """Return a protocol's row with one repeat for each error; without errors, a refused row."""
    repeats = [
        Repeat(
            errors=dict.fromkeys(_ERRORS, mse),
            mse_theory=2e-6,
            seconds=0.5,
            by_value=ByValue(_SHARES, _SHARES + 0.01, np.full(3, 0.02)),
        )
        for mse in mses
    ]
    return SweepRow(
        protocol=protocol,
        target_epsilon=epsilon,
        accounting=accounting,
        population=PEOPLE,
        reference=reference,
        task=TASK if mses else None,
        refusal="" if mses else "it is too much",
        repeats=repeats,
        **changes,
    )


REFUSED: Final = row("aue", 0.1, accounting="published")
