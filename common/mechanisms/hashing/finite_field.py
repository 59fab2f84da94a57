"""
A hash family over a finite field, decoded by Fourier transforms.

Any two distinct points collide with probability exactly 1/q.

A point is a vector v of F_q^t, q prime, written as an integer in base q. A seed is a uniform vector
a of the same space, **0 included**, and the hash is ⟨a, v⟩ mod q. For v ≠ v', ⟨a, v - v'⟩ is
uniform, so a report of a uniform seed and a uniform bucket supports both points with probability
exactly 1/q².

Scaling a report (a, y) by a nonzero constant does not change the points that it supports. So
reports fall into rows of q cells: one row for each canonical seed, whose leading nonzero digit is
1, and one for seed 0. Seed 0 hashes everything to bucket 0: its reports support all points alike,
but omitting them would bias every estimate by q^-t, and forbidding the seed would break pairwise
independence.

Only points with a leading digit below `slices`, the least number that holds all items, are used.
This saves most of the cost of the transform.
"""

import math
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.bits import chunks

MIN_DIGITS: Final = 2
"""Minimum number of digits: with one, there are as many buckets as points."""
MAX_SEEDS: Final = 2**24
"""Maximum size of the analyzer's transform; its half spectrum takes 128 MiB."""

_CHUNK: Final = 1 << 15
"""Reports counted at a time, to fit into the cache."""
_THREADS: Final = os.cpu_count() or 1
"""Threads for transforms, which release the interpreter's lock."""


@dataclass(frozen=True)
class HashFamily:
    """The family of q^t hash functions from slices·q^(t-1) points to 0 .. q-1."""

    q: int
    t: int
    slices: int
    """Number of values of a point's leading digit, at most q."""

    def __post_init__(self) -> None:
        check_prime(self.q)
        if self.t < MIN_DIGITS:
            raise TaskError(f"digits is {self.t}; for hashing it must be at least {MIN_DIGITS}")
        if self.seeds > MAX_SEEDS:
            raise TaskError(
                f"{self.t} digits in base {self.q} give {self.seeds} seeds; "
                f"at most {MAX_SEEDS} can be decoded"
            )
        if not 1 <= self.slices <= self.q:
            raise TaskError(
                f"slices is {self.slices}; it must lie between 1 and {self.q}: "
                "more items need more digits"
            )

    @classmethod
    def holding(cls, items: int, q: int, t: int) -> "HashFamily":
        """Return the family with the fewest slices that hold the items; TaskError if none can."""
        return cls(q, t, -(-items // q ** (t - 1)))

    @property
    def seeds(self) -> int:
        """Number of seeds: q^t."""
        return int(self.q**self.t)

    @property
    def points(self) -> int:
        """Number of points in use: slices·q^(t-1)."""
        return int(self.slices * self.q ** (self.t - 1))

    @property
    def rows(self) -> int:
        """Number of rows: row 0 for seed 0, and (q^t-1)/(q-1) for the canonical seeds."""
        return 1 + (self.seeds - 1) // (self.q - 1)

    def hash(self, seeds: NDArray[np.int64], points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hash each point v with its seed a: ⟨a, v⟩ mod q; arrays broadcast. Cost: t passes."""
        total = np.zeros(np.broadcast_shapes(seeds.shape, points.shape), dtype=np.int64)
        for _ in range(self.t):
            seeds, seed_digit = np.divmod(seeds, self.q)
            points, point_digit = np.divmod(points, self.q)
            total += seed_digit * point_digit
        return total % self.q

    # --- counting: run by the analyzer, with tables computed on first use -----------------

    @cached_property
    def _multiples(self) -> NDArray[np.int32]:
        """Return the vector k·a for every canonical seed a (rows) and k = 1 .. q-1 (columns)."""
        canonical = np.concatenate(
            [np.arange(self.q**digit, 2 * self.q**digit) for digit in range(self.t)]
        )
        factors = np.arange(1, self.q)
        multiples = np.zeros((len(canonical), self.q - 1), dtype=np.int32)
        place = 1
        for _ in range(self.t):
            canonical, digit = np.divmod(canonical, self.q)
            multiples += (digit[:, None] * factors % self.q * place).astype(np.int32)
            place *= self.q
        return multiples

    @cached_property
    def _first_cell(self) -> NDArray[np.int32]:
        """Return the first cell of each seed's row, shape (seeds,)."""
        first = np.zeros(self.seeds, dtype=np.int32)
        first[self._multiples] = np.arange(1, self.rows)[:, None] * self.q
        return first

    @cached_property
    def _to_canonical(self) -> NDArray[np.uint32]:
        """Return the factor from each seed to its canonical multiple, (seeds,); 1 for seed 0."""
        constant = np.ones(self.seeds, dtype=np.uint32)
        constant[self._multiples] = inverses(self.q)[1:]
        return constant

    def tally(self, seeds: NDArray[np.uint64], buckets: NDArray[np.uint32]) -> Counts:
        """
        Count reports, of seeds below q^t and buckets below q, by cell: shape (n,) -> (rows · q,).

        Cell y of row r is at r·q + y. Cost: one pass over the reports, two table look-ups each.
        """
        first, constant = self._first_cell, self._to_canonical
        cells = np.empty(len(seeds), dtype=np.int64)
        for part in chunks(len(seeds), 1, _CHUNK):
            seed = seeds[part].astype(np.int64)
            bucket = constant[seed]
            bucket *= buckets[part]  # below q² ≤ MAX_SEEDS, so 32 bits hold it
            bucket %= np.uint32(self.q)
            np.add(first[seed], bucket, out=cells[part], casting="unsafe")
        return np.bincount(cells, minlength=self.rows * self.q)

    # --- decoding: a real array has a Hermitian spectrum, so half of it is enough ---------------
    #
    # The half spectrum holds the vectors u of F_q^t whose last digit is at most q//2, in the layout
    # of scipy's real transforms; the value at any other u is the conjugate of that at -u.

    @property
    def _half(self) -> int:
        return self.q // 2 + 1

    @cached_property
    def _spread(self) -> tuple[NDArray[np.int64], Vector]:
        """
        Return index and sign of k·a in the half spectrum for every row and k = 1 .. q//2.

        The sign is -1 if the value there is conjugated, else 1.
        """
        vectors = self._multiples[:, : self._half - 1].astype(np.int64)
        negated = np.zeros_like(vectors)
        rest, place = vectors, 1
        for _ in range(self.t):
            rest, digit = np.divmod(rest, self.q)
            negated += (self.q - digit) % self.q * place
            place *= self.q
        outside = vectors % self.q >= self._half
        inside = np.where(outside, negated, vectors)
        return inside // self.q * self._half + inside % self.q, np.where(outside, -1.0, 1.0)

    @cached_property
    def _gather(self) -> tuple[NDArray[np.int64], Vector]:
        """Return index (row, frequency) and sign of each u = k·a ≠ 0 in the rows' spectra."""
        heads = np.arange(self.seeds // self.q) * self.q
        vectors = (heads[:, None] + np.arange(self._half)).ravel()
        vectors[0] = 1  # u = 0 has no row; its value is set by the caller
        frequency = inverses(self.q)[self._to_canonical[vectors]]
        mirrored = frequency >= self._half
        frequency = np.where(mirrored, self.q - frequency, frequency)
        row = self._first_cell[vectors] // self.q - 1
        return row.astype(np.int64) * self._half + frequency, np.where(mirrored, -1.0, 1.0)

    @cached_property
    def _phases(self) -> NDArray[np.complex128]:
        """Return ω^(digit·slice) for the leading digit, with ω = e^(2πi/q); shape (slices, q)."""
        turns = np.outer(np.arange(self.slices), np.arange(self.q)) % self.q
        return np.asarray(np.exp(2j * np.pi * turns / self.q))

    def adjoint(self, cells: Vector) -> Vector:
        """
        Sum the cells that support each point. Shape (rows · q,) -> (points,).

        With F_a the discrete Fourier transform of row a, the sum over rows of cell ⟨a, v⟩ is (1/q)
        Σ_a Σ_k F_a[k] ω^{k⟨a,v⟩}: the inverse t-dimensional transform of the F_a[k] placed at the
        vectors k·a. The terms k = 0 add the total of all rows. Cost: a transform of every row and
        one of the points.
        """
        table = cells.reshape(self.rows, self.q)
        rows = scipy.fft.rfft(table[1:], axis=1, workers=_THREADS)
        source, sign = self._gather
        spectrum = rows.ravel()[source]
        spectrum.imag *= sign
        spectrum[0] = 0
        by_slice = self._phases @ spectrum.reshape(self.q, -1)
        shape = (self.q,) * (self.t - 1)
        sums = scipy.fft.irfftn(
            by_slice.reshape(self.slices, *shape[:-1], self._half),
            s=shape,
            axes=range(1, self.t),
            norm="forward",
            workers=_THREADS,
        )
        return np.asarray((sums.ravel() + table[1:].sum()) / self.q + table[0, 0])

    def forward(self, theta: Vector) -> Vector:
        """Sum theta over each cell's points: the transpose of `adjoint`, at the same cost."""
        shape = (self.slices,) + (self.q,) * (self.t - 1)
        by_slice = scipy.fft.rfftn(theta.reshape(shape), axes=range(1, self.t), workers=_THREADS)
        spectrum = self._phases.conj().T @ by_slice.reshape(self.slices, -1)
        place, sign = self._spread
        rows = np.empty((self.rows - 1, self._half), dtype=np.complex128)
        rows[:, 0] = theta.sum()
        rows[:, 1:] = spectrum.ravel()[place]
        rows[:, 1:].imag *= sign
        table = np.zeros((self.rows, self.q))
        table[1:] = scipy.fft.irfft(rows, n=self.q, axis=1, workers=_THREADS)
        table[0, 0] = theta.sum()
        return table.ravel()


@lru_cache(maxsize=4)
def inverses(q: int) -> NDArray[np.int64]:
    """Return the inverse of each element of F_q, shape (q,); 0 for 0."""
    return np.array([0, *(pow(element, -1, q) for element in range(1, q))], dtype=np.int64)


def is_prime(number: int) -> bool:
    """Return whether a number is prime. Cost: its root's number of divisions."""
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def check_prime(buckets: int) -> None:
    """Raise TaskError unless the number of buckets is prime."""
    if not is_prime(buckets):
        raise TaskError(f"buckets is {buckets}; it must be a prime number")
