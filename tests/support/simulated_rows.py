"""Rows of a simulation, made by hand."""

from types import MappingProxyType
from typing import Final

import numpy as np

from deploy.datasets.catalogue import Dataset
from deploy.simulate.baselines import CentralErrors
from deploy.simulate.errors import ByValue, Repeat
from deploy.simulate.populations import Population
from deploy.simulate.row import Accounting, SweepRow, SweepSetting
from tests.support.tasks import published

TASK: Final = published().task
"""Whose claims the rows have."""
ERRORS: Final = (
    "mse",
    "mse_refined",
    "mse_top50",
    "mse_top50_refined",
    "max_error",
    "relative_error",
    "regret",
)
_TASK_BYTES: Final = TASK.to_bytes()
PEOPLE: Final = Population.of_items(
    Dataset(name="made", title="made", labels=("a", "b", "c"), counts=np.array([5, 3, 2])), 10
)
_SHARES: Final = np.array([0.5, 0.3, 0.2])


def row(  # noqa: PLR0917
    protocol: str,
    epsilon: float,
    mses: tuple[float, ...],
    accounting: Accounting = "tight",
    note: str = "",
    refined: float | None = None,
    reference: CentralErrors = MappingProxyType({}),
) -> SweepRow:
    """Return the row of a protocol with these errors of its repeats."""
    setting = SweepSetting(
        protocol=protocol,
        target_epsilon=epsilon,
        accounting=accounting,
        task_bytes=_TASK_BYTES,
        note=note,
    )
    repeats = [
        Repeat(
            errors=dict.fromkeys(ERRORS, mse)
            | {"mse_refined": mse if refined is None else refined},
            mse_theory=2e-6,
            seconds=0.5,
            by_value=ByValue(_SHARES, _SHARES + 0.01, np.full(3, 0.02)),
        )
        for mse in mses
    ]
    return SweepRow.of(setting, repeats, PEOPLE, reference)


def refused_row(protocol: str) -> SweepRow:
    """Return the row of a protocol that was refused at its target."""
    setting = SweepSetting(
        protocol=protocol, target_epsilon=0.1, accounting="published", refusal="it is too much"
    )
    return SweepRow.of(setting, [], PEOPLE, {})
