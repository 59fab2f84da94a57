"""What a trusted collector would err by at a target: the lines that a comparison refers to."""

from dataclasses import dataclass
from typing import Any, Self

from common.mechanisms.base import Counts
from deploy.simulate.baselines.central_histogram import CentralHistogram
from deploy.simulate.baselines.choices import regret

LAPLACE = "central Laplace"
GAUSSIAN = "central Gaussian"
CHOICE = "central choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Exact figures, nothing simulated."""

    laplace_mse: float
    """Mean squared error of a share, noise of scale 2/ε on every count."""
    gaussian_mse: float
    """The same by Gaussian noise at the target's δ as well."""
    regret: float
    """Expected shortfall of an item that is chosen as the most frequent one, in shares. A choice
    tells nothing else, and has no error of a share."""

    @classmethod
    def of(cls, people: Counts, epsilon: float, delta: float) -> Self:
        """Work them out for people by item."""
        n_users = int(people.sum())
        return cls(
            laplace_mse=CentralHistogram.laplace(epsilon).mse(n_users),
            gaussian_mse=CentralHistogram.gaussian(epsilon, delta).mse(n_users),
            regret=regret(people, epsilon),
        )

    def lines(self) -> dict[str, float]:
        """Give the errors of a share by name."""
        return {LAPLACE: self.laplace_mse, GAUSSIAN: self.gaussian_mse}

    def as_json(self) -> dict[str, Any]:
        """Give every figure, flat."""
        return {
            "central_laplace_mse": self.laplace_mse,
            "central_gaussian_mse": self.gaussian_mse,
            "central_regret": self.regret,
        }
