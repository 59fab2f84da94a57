"""
Laplace and Gaussian noise for whole numbers, calibrated to a promise and drawn exactly.

A query is in whole steps, however fine, and its sensitivity is how many steps one person's value
may move it: Σ|v| for Laplace noise, √Σv² for Gaussian noise.

Gaussian noise is calibrated as continuous noise is, by the analytic Gaussian mechanism [BW18], and
drawn in whole numbers [CKS20]. What that takes is 4 steps² of variance, by the convolution of
lattice Gaussians [Pei10]: draw G from N(v, s²), and from it a whole X with weights
e^(-(x-G)²/2r²), r = 2. The weights' sum is r√2π for every G but for a relative 2e^(-2π²r²) =
1e-34, and so X has the law of v + N_Z(0, s²+r²) but for as much. Whoever sees X sees no more than
whoever sees G: v + N_Z(0, s²+4) is as private as v + N(0, s²) in any number of dimensions, but for
factors that 1e-9 of the calibration covers many times over.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from common.accounting.gaussian import gaussian_delta, gaussian_mu
from common.errors import AccountingError
from common.mechanisms.sampling import MAX_DENOMINATOR, discrete_gaussian, discrete_laplace
from deploy.simulate.baselines.central_guarantee import MOST_EPSILON, CentralGuarantee

_SCALE_BITS: Final = 30
"""Binary places of a Laplace scale, where there is room for them."""
_ROUNDING: Final = 4
"""r², in steps²: what whole numbers cost Gaussian noise."""
_MARGIN: Final = 1e-9
"""By which a calibrated δ stays below its target."""


class Noise(Protocol):
    """Noise for whole numbers that one person moves by so much at most."""

    @property
    def guarantee(self) -> CentralGuarantee:
        """What adding it once promises."""

    @property
    def variance(self) -> float:
        """Of one draw, in steps²."""

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw independent noise; shape (size,)."""


@dataclass(frozen=True)
class LaplaceNoise:
    """P(x) ∝ e^(-|x|/b), b at least sensitivity/ε [DMNS06]."""

    epsilon: float
    sensitivity: int
    """Most steps that one person moves all numbers by, taken together."""

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity)
        if self.sensitivity / self.epsilon > MAX_DENOMINATOR:
            raise AccountingError(
                f"epsilon is {self.epsilon} and the sensitivity {self.sensitivity}; "
                f"their ratio must be at most {MAX_DENOMINATOR}"
            )

    @cached_property
    def scale(self) -> Fraction:
        """Give b: sensitivity / ε, rounded up to as many binary places as there is room for."""
        exact = Fraction(self.sensitivity) / Fraction(self.epsilon)
        room = MAX_DENOMINATOR.bit_length() - 1 - math.ceil(exact).bit_length()
        places = max(0, min(_SCALE_BITS, room))
        return Fraction(math.ceil(exact * 2**places), 2**places)

    @property
    def guarantee(self) -> CentralGuarantee:
        """ε, and no δ."""
        return CentralGuarantee(
            epsilon=self.epsilon,
            delta=0.0,
            theorem="Laplace mechanism [DMNS06], in whole numbers [CKS20]",
        )

    @property
    def variance(self) -> float:
        """Of one draw: 2a / (1-a)² with a = e^(-1/b)."""
        steep = 1 / float(self.scale)
        return 2 * math.exp(-steep) / math.expm1(-steep) ** 2

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw independent noise; shape (size,)."""
        over, under = self.scale.as_integer_ratio()
        return discrete_laplace(over, under, size, rng)


@dataclass(frozen=True)
class GaussianNoise:
    """P(x) ∝ e^(-x²/2σ²), σ² the least that keeps (ε, δ) by continuous noise, and 4 [BW18]."""

    epsilon: float
    delta: float
    squared_sensitivity: int
    """Most that the squares of the steps which one person moves each number by add to."""

    def __post_init__(self) -> None:
        _check(self.epsilon, self.squared_sensitivity)
        if not 0 < self.delta < 1:
            raise AccountingError(f"delta is {self.delta}; it must be above 0 and below 1")

    @cached_property
    def _mu(self) -> float:
        """Largest μ of Gaussian privacy that passes below (ε, δ), by a margin."""
        mu = gaussian_mu(self.epsilon, self.delta)
        while gaussian_delta(mu, self.epsilon) > self.delta * (1 - _MARGIN):
            mu *= 1 - _MARGIN
        return mu

    @cached_property
    def sigma_squared(self) -> Fraction:
        """σ², in steps², rounded up to a multiple of 1/1024."""
        exact = Fraction(self.squared_sensitivity) / Fraction(self._mu) ** 2 + _ROUNDING
        return Fraction(math.ceil(exact * 1024), 1024)

    @property
    def guarantee(self) -> CentralGuarantee:
        """(ε, δ) as asked for."""
        return CentralGuarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            theorem="analytic Gaussian mechanism [BW18], in whole numbers [CKS20]",
        )

    @property
    def variance(self) -> float:
        """Of one draw: σ², whole numbers or not, to the last digit from σ = 2 on."""
        return float(self.sigma_squared)

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw independent noise; shape (size,)."""
        return discrete_gaussian(self.sigma_squared, size, rng)


def _check(epsilon: float, sensitivity: int) -> None:
    if not 0 < epsilon <= MOST_EPSILON:
        raise AccountingError(
            f"epsilon is {epsilon}; it must be above 0 and at most {MOST_EPSILON}"
        )
    if sensitivity < 1:
        raise AccountingError(f"the sensitivity is {sensitivity}; it must be at least 1")
