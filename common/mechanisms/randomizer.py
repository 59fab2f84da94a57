"""What every mechanism offers, whatever kind of value it randomizes."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.reduction import Reduction

Reports = NDArray[np.void]
"""n reports: shape (n,), of a mechanism's report_dtype."""
Counts = NDArray[np.int64]
Vector = NDArray[np.float64]


class Randomizer(Protocol):
    """
    One randomizer: what the device, the analyzer and the accountant ask of any of them.

    What values look like, and the estimator, are those of each kind of value: see mechanism.py for
    items, number.py for numbers, rappor.py for texts, priv_kv.py for pairs.
    """

    @property
    def local_epsilon(self) -> float:
        """What a report gives away by itself, rounded up; infinite without noise."""

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether no report gives away more, in exact arithmetic. Run by the user agent."""

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """Fixed-size layout of a report; its bytes are the plaintext of a sealed report."""

    @property
    def reduction(self) -> Reduction | None:
        """What accounting for a shuffler needs; None of a mechanism that it has no formula for."""

    def randomize(self, values: Any, rng: np.random.Generator) -> Reports:  # noqa: ANN401
        """Randomize n people's values, laid out as their kind is. Run by the user agent."""

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports this mechanism can make. Run by the analyzer."""

    def tally(self, reports: Reports) -> Counts:
        """Add valid reports up, in whole numbers: all that the analyzer keeps. Shape (cells,)."""
