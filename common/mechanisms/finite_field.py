"""
An exactly pairwise independent hash family over a finite field, decoded by one Fourier transform.

A point is a vector v of F_q^t, q prime, written as an integer in base q. A seed is a uniform
vector a of the same space, **0 included**, and the hash is ⟨a, v⟩ mod q: any two points collide
under a uniform seed with probability exactly 1/q.

Scaling (a, y) by a nonzero constant changes nothing about what it supports. So reports fall into
rows (one a canonical seed, whose leading nonzero digit is 1; and one for seed 0) of q cells.
Seed 0 hashes everything to bucket 0: its reports tell no point from another, but leaving them out
would bias every estimate by q^-t, and forbidding the seed would break pairwise independence.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.mechanism import Counts, Vector

MIN_DIGITS: Final = 2
"""With one digit there are as many buckets as points, and nothing is hashed."""
MAX_POINTS: Final = 2**24
"""Points of the field that the analyzer's transform takes (256 MiB of complex numbers)."""

_CHUNK: Final = 1 << 15
"""Reports counted at a time, so that the work stays in the cache."""


@dataclass(frozen=True)
class FiniteField:
    """The family of q^t hash functions from 0 .. q^t-1 to 0 .. q-1, and its transforms."""

    q: int
    t: int

    def __post_init__(self) -> None:
        if not _is_prime(self.q):
            raise TaskError(f"buckets is {self.q}; it must be a prime number")
        if self.t < MIN_DIGITS:
            raise TaskError(f"digits is {self.t}; hashing needs at least {MIN_DIGITS}")
        if self.size > MAX_POINTS:
            raise TaskError(
                f"{self.t} digits in base {self.q} make {self.size} points; "
                f"at most {MAX_POINTS} can be decoded"
            )

    @property
    def size(self) -> int:
        """How many points, and how many seeds, there are: q^t."""
        return int(self.q**self.t)

    @property
    def rows(self) -> int:
        """How many rows of cells there are: (q^t-1)/(q-1) canonical seeds, and seed 0 (row 0)."""
        return 1 + (self.size - 1) // (self.q - 1)

    def hash(self, seeds: NDArray[np.int64], points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hash each point with its seed: ⟨a, v⟩ mod q, shape (n,). Cost: t passes over n."""
        total = np.zeros(np.broadcast_shapes(seeds.shape, points.shape), dtype=np.int64)
        for _ in range(self.t):
            seeds, seed_digit = np.divmod(seeds, self.q)
            points, point_digit = np.divmod(points, self.q)
            total += seed_digit * point_digit
        return total % self.q

    # --- tables of the analyzer, made when first needed ---------------------------------------

    @cached_property
    def _multiples(self) -> NDArray[np.int64]:
        """The point k·a for every canonical seed a (rows) and k = 1 .. q-1 (columns)."""
        canonical = np.concatenate(
            [np.arange(self.q**digit, 2 * self.q**digit) for digit in range(self.t)]
        )
        factors = np.arange(1, self.q)
        multiples = np.zeros((len(canonical), self.q - 1), dtype=np.int64)
        place = 1
        for _ in range(self.t):
            canonical, digit = np.divmod(canonical, self.q)
            multiples += digit[:, None] * factors % self.q * place
            place *= self.q
        return multiples

    @cached_property
    def _first_cell(self) -> NDArray[np.int32]:
        """The first cell of the row that each seed belongs to."""
        first = np.zeros(self.size, dtype=np.int32)
        first[self._multiples] = np.arange(1, self.rows)[:, None] * self.q
        return first

    @cached_property
    def _to_canonical(self) -> NDArray[np.uint32]:
        """The constant that takes each seed to its canonical multiple; 1 for seed 0."""
        inverses = np.array([pow(k, -1, self.q) for k in range(1, self.q)])
        constant = np.ones(self.size, dtype=np.uint32)
        constant[self._multiples] = inverses
        return constant

    def tally(self, seeds: NDArray[np.uint64], buckets: NDArray[np.uint32]) -> Counts:
        """
        Count reports (seed, bucket) by cell. Run by the analyzer.

        Args:
            seeds: Shape (n,), below q^t.
            buckets: Shape (n,), below q.

        Returns:
            Counts of shape (rows · q,): cell y of row r stands at r·q + y.

        Cost: one pass over the reports, two table look-ups each.
        """
        first, constant = self._first_cell, self._to_canonical
        cells = np.empty(len(seeds), dtype=np.int64)
        for start in range(0, len(seeds), _CHUNK):
            part = slice(start, start + _CHUNK)
            seed = seeds[part].astype(np.int64)
            bucket = constant[seed]
            bucket *= buckets[part]  # below q² ≤ MAX_POINTS, so 32 bits hold it
            bucket %= np.uint32(self.q)
            np.add(first[seed], bucket, out=cells[part], casting="unsafe")
        return np.bincount(cells, minlength=self.rows * self.q)

    def adjoint(self, cells: Vector) -> Vector:
        """
        Sum, for every point, the cells that support it. Shape (rows · q,) -> (q^t,).

        With F_a the discrete Fourier transform of row a, the sum over rows of cell ⟨a, v⟩ is
        (1/q) Σ_a Σ_k F_a[k] ω^{k⟨a,v⟩}: the inverse t-dimensional transform of the F_a[k] placed at
        the points k·a. The terms k = 0 add the total of all rows.

        Cost: one transform of size q^t and one of every row.
        """
        table = cells.reshape(self.rows, self.q)
        spectrum = np.zeros(self.size, dtype=np.complex128)
        spectrum[self._multiples] = scipy.fft.fft(table[1:], axis=1)[:, 1:]
        spectrum = scipy.fft.ifftn(spectrum.reshape((self.q,) * self.t), norm="forward")
        sums: Vector = (spectrum.real.ravel() + table[1:].sum()) / self.q + table[0, 0]
        return sums

    def forward(self, theta: Vector) -> Vector:
        """
        Sum theta over the points that each cell supports. Shape (q^t,) -> (rows · q,).

        The transposed map of `adjoint`, at the same cost.
        """
        spectrum = scipy.fft.fftn(theta.reshape((self.q,) * self.t)).ravel()
        rows = np.empty((self.rows - 1, self.q), dtype=np.complex128)
        rows[:, 0] = theta.sum()
        rows[:, 1:] = spectrum[self._multiples]
        table = np.zeros((self.rows, self.q))
        table[1:] = scipy.fft.ifft(rows, axis=1).real
        table[0, 0] = theta.sum()
        return table.ravel()


def _is_prime(number: int) -> bool:
    return number >= 2 and all(  # noqa: PLR2004
        number % divisor for divisor in range(2, int(number**0.5) + 1)
    )
