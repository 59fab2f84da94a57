"""
The band that a square wave spreads items over, and its way back by least squares.

Item v reaches the places v .. v+w-1, w the width: z = Aθ, z_j the sum of θ over the w items that
reach place j. There are w-1 places more than items, so that θ can be told in several ways from a
noisy z; least squares is the best of those that take every place for equally noisy.

In one way, from the left, z_j - z_(j-1) = θ_j - θ_(j-w), and
    θ_v = Σ_k z_(v-kw) - z_(v-1-kw).
What no θ can bring about are the vectors that repeat with period w and sum to 0 over a period:
they are orthogonal to all bands, and there are w-1 of them. So the least-squares estimate is the
one from the left after z's part among them has been taken out. In class r of places, r = j mod w,
with N_r members and mean m_r, that part is m_r - λ/N_r with λ = Σ m_r / Σ 1/N_r.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.randomizer import Vector


@dataclass(frozen=True)
class Band:
    """The linear map A, its adjoint, and its least-squares inverse."""

    items: int
    width: int

    @property
    def places(self) -> int:
        """How many places there are: items + width - 1."""
        return self.items + self.width - 1

    def forward(self, theta: Vector) -> Vector:
        """Sum theta over the items that reach each place. (items,) -> (places,)."""
        sums = np.concatenate([[0.0], np.cumsum(theta)])
        place = np.arange(self.places)
        reaching: Vector = (
            sums[np.minimum(place + 1, self.items)] - sums[np.maximum(place + 1 - self.width, 0)]
        )
        return reaching

    def adjoint(self, weights: Vector) -> Vector:
        """Sum weights over the places that each item reaches. (places,) -> (items,)."""
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        reached: Vector = sums[self.width :] - sums[: self.items]
        return reached

    def solve(self, z: Vector) -> Vector:
        """
        Estimate theta from a noisy Aθ by least squares: (places,) -> (items,), exact on any Aθ.

        Cost: a few passes over the places.
        """
        means = self._class_sums(z) * self._inverse_sizes
        unreachable = means - means.sum() / self._inverse_sizes.sum() * self._inverse_sizes
        chains = self._chains(z - unreachable[self._classes])
        estimate: Vector = chains[1 : self.items + 1] - chains[: self.items]
        return estimate

    def variance(self, law: Vector) -> Vector:
        """
        Give the variance of each estimate from one draw: z is 1 at a place drawn from `law`.

        With the coefficients s of an item's estimate it is Σ s² π - (Σ s π)², exact. On chain v,
        which is the places v, v-w, .. , s is 1 - c at v's class and -1 - c at that of v-1, minus c
        everywhere else, where c = m - λ/N as above is the part of these ones that is taken out.

        Cost: a few passes over the places.
        """
        if self.width == 1:
            return law * (1 - law)  # the chains from v and v-1 are one, and the estimate is z
        inverse = self._inverse_sizes
        mass = self._class_sums(law)
        chains = self._chains(law)
        own, before = chains[1 : self.items + 1], chains[: self.items]
        item = np.arange(self.items)
        here, left = item % self.width, (item - 1) % self.width
        m_here = (item // self.width + 1) * inverse[here]
        m_left = -((item - 1) // self.width + 1) * inverse[left]
        level = (m_here + m_left) / inverse.sum()
        taken_here, taken_left = m_here - level * inverse[here], m_left - level * inverse[left]
        linear = m_here * mass[here] + m_left * mass[left] - level * (mass * inverse).sum()
        # Σ c² π over all places: that of c = -level/N everywhere, put right in two classes.
        square = level**2 * (mass * inverse**2).sum() + (
            (taken_here**2 - (level * inverse[here]) ** 2) * mass[here]
            + (taken_left**2 - (level * inverse[left]) ** 2) * mass[left]
        )
        second = own + before - 2 * (taken_here * own - taken_left * before) + square
        first = own - before - linear
        spread: Vector = second - first**2
        return spread

    @cached_property
    def _classes(self) -> NDArray[np.int64]:
        return np.arange(self.places) % self.width

    @cached_property
    def _inverse_sizes(self) -> Vector:
        """1/N_r."""
        return 1 / np.bincount(self._classes, minlength=self.width)

    def _class_sums(self, z: Vector) -> Vector:
        return np.bincount(self._classes, weights=z, minlength=self.width).astype(np.float64)

    def _chains(self, z: Vector) -> Vector:
        """Sum z_j + z_(j-w) + .. for every j from -1 on, where it is 0: one more than places."""
        rows = -(-self.places // self.width)
        padded = np.zeros(rows * self.width)
        padded[: self.places] = z
        sums = padded.reshape(rows, self.width).cumsum(axis=0).ravel()
        return np.concatenate([[0.0], sums[: self.places]])
