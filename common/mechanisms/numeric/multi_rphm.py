"""
Multi-RPHM [Sun+20]: Multi-HM on a random projection to fewer dimensions.

A vector t becomes x = clip(tR, -1, 1), for a public d × q matrix R with orthonormal columns,
derived from the task's nonce. The mean of x is estimated and mapped back by Rᵀ.

The estimate is biased: it loses the part orthogonal to R, on average a share 1 - q/d of the squared
means, and clipping distorts it slightly. Averaged over R, the estimate is the mean times q/d, with
the noise of Multi-HM times q/d. Scaling by q/d without projection has as much noise but less bias.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar, Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.base import Counts, Reports, Vector
from common.mechanisms.numeric.coordinate_sampling import MultiHm
from common.mechanisms.numeric.number import Moments, Numbers, check_numbers
from common.protocols import NumberMechanismName
from common.task.task import NONCE_BYTES, Task

SHARE: Final = 0.3
"""The ratio q / d in [Sun+20]."""
_LABEL: Final = b"shuffledp v1 projection"


def paper_projected(dimensions: int) -> int:
    """Return q = .3·d, rounded to the nearest integer, at least 1 [Sun+20]."""
    return max(1, round(SHARE * dimensions))


@lru_cache(maxsize=2)
def projection(nonce: bytes, dimensions: int, projected: int) -> NDArray[np.float64]:
    """
    Derive R from a nonce. Run by the user agent and the analyzer, with the same result.

    SHAKE-256 [FIPS202] of a label and the nonce gives uniform 53-bit numbers, Φ⁻¹ makes them
    normal, and Gram-Schmidt makes the columns orthonormal: their span is a uniform subspace.
    Library versions change only the rounding, which does not matter: numbers are rounded at random.

    R has the shape (d, q), for `dimensions` d and `projected` q, at most d. Cost: d·q normal
    numbers and 2·d·q² multiplications: a second at 2,000 × 600.
    """
    stream = hashlib.shake_256(_LABEL + nonce).digest(8 * dimensions * projected)
    words = np.frombuffer(stream, dtype="<u8") >> np.uint64(11)
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-53
    normal = scipy.special.ndtri(uniform).reshape(dimensions, projected)
    columns, upper = np.linalg.qr(normal)
    # The signs of Householder's method depend on the library; use those of Gram-Schmidt.
    return columns * np.where(np.diagonal(upper) < 0, -1.0, 1.0)


MAX_ENTRIES: Final = 2**21
"""Maximum d·q: a device computes the projection once per task, in a few seconds."""


@dataclass(frozen=True)
class MultiRphm(MultiHm):
    """
    Multi-HM on the projected vector; means are mapped back.

    The projection depends on no value, and a projected and clipped vector is another vector of the
    cube: reports, local ε and reduction are those of Multi-HM over q dimensions.
    """

    NAME: ClassVar[NumberMechanismName] = "multi-rphm"

    projected: int
    """q, the dimensions of the projected vector."""
    nonce: bytes = bytes(NONCE_BYTES)
    """The task's nonce, from which the projection is derived."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimensions * self.projected > MAX_ENTRIES:
            raise TaskError(
                f"projected is {self.projected} and dimensions {self.dimensions}; "
                f"their product may be at most {MAX_ENTRIES}"
            )

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """Choose q as in [Sun+20], and the integer weights of Multi-HM over q dimensions."""
        inner = MultiHm.for_epsilon(paper_projected(dimensions), local_epsilon)
        return cls(dimensions, inner.sampled, inner.answer, inner.dimensions)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build the mechanism of a task, with the projection of its nonce."""
        return replace(super().of(task), nonce=task.nonce)

    @property
    def coordinates(self) -> int:
        """Number q of coordinates to sample from."""
        return self.projected

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """R, shape (d, q)."""
        return projection(self.nonce, self.dimensions, self.projected)

    def project(self, values: Numbers) -> Numbers:
        """Return clip(tR, -1, 1) for each user: (n, d) -> (n, q). Run by the user agent."""
        return np.clip(values @ self.matrix, -1.0, 1.0)

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """Randomize each user's projection by Multi-HM. Run by the user agent."""
        values = check_numbers(values, self.dimensions)
        return super().randomize(self.project(values), rng)

    def estimate(self, cells: Counts) -> Moments:
        """
        Map the means of the projected vectors back. Run by the analyzer.

        The variances include only noise. They omit the covariances between projected dimensions, a
        share of about 1/q, which depend on unknown products of the numbers.
        """
        projected = super().estimate(cells)
        return Moments(
            means=self.matrix @ projected.means,
            variances=self.matrix**2 @ projected.variances,
            unbiased=False,
        )

    def variance(self, values: Numbers) -> Vector:
        """
        Return the exact variance of the estimated means for these users, due to noise alone.

        A report covers projected dimensions i and l with probability k(k-1)/(q(q-1)) and represents
        q/k times their numbers. So its covariance there is (q(k-1)/(k(q-1)) - 1)·x_i·x_l =
        -c·x_i·x_l, c = (q-k)/(k(q-1)), and c·((xRᵀ)² - Σ_i R_i²x_i²) is subtracted.
        """
        projected = self.project(values)
        k, q = self.sampled, self.projected
        c = (q - k) / (k * (q - 1)) if q > 1 else 0.0
        squares = (projected**2).sum(axis=0)
        mapped = ((projected @ self.matrix.T) ** 2).sum(axis=0)
        products = mapped - self.matrix**2 @ squares
        own = self.matrix**2 @ super().variance(projected)
        exact: Vector = own - c * products / len(values) ** 2
        return exact

    def bias(self, values: Numbers) -> Vector:
        """Return the exact bias for these users, clipping included: E[estimate] - mean."""
        expected: Vector = self.matrix @ self.project(values).mean(axis=0) - values.mean(axis=0)
        return expected
