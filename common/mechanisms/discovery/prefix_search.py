"""
Find frequent codes in reports of prefix hashing, byte by byte. Run by the analyzer.

A level's reports on a prefix that nobody holds support it with probability 1/g each, independently:
its count is binomial. A prefix is kept if its count exceeds the critical count of its level. The
next level's reports are then solved for the next byte of each kept prefix, which costs one product
for each pair of report and prefix instead of 256.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from common.mechanisms.base import Counts, Reports, Vector
from common.mechanisms.discovery.prefix_hashing import PrefixHashing
from common.messages.result import FoundValues

BYTES: Final = 256
MAX_KEPT: Final = 8192
"""Maximum number of prefixes kept at a level, the most frequent ones. More can pass only if
dishonest users send reports that support very many values."""
_ALLOWED_FALSE: Final = 50.0
"""Expected number of prefixes that nobody holds and that a level keeps, before the last level."""
_MAX_TAIL: Final = 0.2
"""Maximum probability with which such a prefix is kept, if there are few candidates."""
_EXPECTED_FALSE: Final = 1.0
"""The same number for the last level, whose prefixes are the values found."""
SURE: Final = 0.95
"""Probability with which a value of the stated share is found."""
_THREADS: Final = os.cpu_count() or 1
_CHUNK: Final = 1 << 17
"""Pairs of report and prefix that are solved at a time, to fit into the cache."""
_MIN_COLUMNS: Final = 256
_EXACT_FLOAT32: Final = 2.0**23
"""Bound on g · (1 + Σ|prefix|) for float32: sums are then at most half of it."""


@dataclass(frozen=True, eq=False)
class LevelReports:
    """The reports of one level, solved for the last element that it hashes."""

    seeds: NDArray[np.int64]
    """Seed elements but the last, divided by the last; shape (reports, others)."""
    buckets: NDArray[np.int64]
    """Buckets, divided by the last seed element."""
    free_seeds: NDArray[np.int64]
    """The same of reports whose last seed element is 0, which fit every last element or none."""
    free_buckets: NDArray[np.int64]

    @classmethod
    def of(cls, reports: Reports, mechanism: PrefixHashing, level: int) -> Self:
        """Select a level's reports and divide each by its last seed element."""
        chosen, g = reports[reports["level"] == level], mechanism.buckets
        seeds = chosen["seed"][:, : len(mechanism.columns[level])].astype(np.int64)
        buckets, bound = chosen["bucket"].astype(np.int64), seeds[:, -1] > 0
        inverse = _inverses(g)[seeds[bound, -1]]
        return cls(
            seeds=seeds[bound, :-1] * inverse[:, np.newaxis] % g,
            buckets=buckets[bound] * inverse % g,
            free_seeds=seeds[~bound, :-1],
            free_buckets=buckets[~bound],
        )

    @property
    def number(self) -> int:
        """Number of reports of the level."""
        return len(self.buckets) + len(self.free_buckets)

    def next_counts(self, prefixes: NDArray[np.int64], g: int) -> Counts:
        """
        Count the reports that support each prefix, (prefixes, others), with each next byte.

        A report supports the byte bucket - Σ seed·prefix mod g, if that is a byte. The sum is a
        matrix product of whole numbers that floats hold exactly; added to 1/2, it is far enough
        from the multiples of g for the rounding of a division.

        Returns counts of shape (prefixes, 256). Cost: about 3 ns per report and prefix.
        """
        kept, middle = len(prefixes), int(prefixes.max(initial=0)) // 2
        left = prefixes - middle
        reach = 1 + int(np.abs(left).sum(axis=1).max(initial=0))
        form: type[Any] = np.float32 if g * reach < _EXACT_FLOAT32 else np.float64
        matrix, step = -left.astype(form), max(_MIN_COLUMNS, _CHUNK // max(1, kept))
        seeds = _centred(self.seeds, g).astype(form)
        buckets = _centred(self.buckets - middle * self.seeds.sum(axis=1), g).astype(form)

        def count(starts: Sequence[int]) -> Counts:
            total = np.zeros(kept * BYTES, dtype=np.int64)
            for start in starts:
                solved = matrix @ seeds[start : start + step].T
                solved += buckets[start : start + step] + form(0.5)
                solved -= np.floor(solved * form(1 / g)) * form(g)
                flat = solved.ravel()
                found = np.flatnonzero(flat < BYTES)
                cells = found // solved.shape[1] * BYTES + flat[found].astype(np.int64)
                total += np.bincount(cells, minlength=len(total))
            return total

        starts, free = range(0, len(buckets) if kept else 0, step), np.zeros(kept, dtype=np.int64)
        with ThreadPoolExecutor(_THREADS) as pool:  # numpy releases the interpreter's lock
            shares = pool.map(count, [starts[first::_THREADS] for first in range(_THREADS)])
            counts: Counts = np.sum(list(shares), axis=0)
        for start in range(0, len(self.free_buckets), step):
            sums = prefixes @ self.free_seeds[start : start + step].T
            free += ((self.free_buckets[start : start + step] - sums) % g == 0).sum(axis=1)
        return counts.reshape(kept, BYTES) + free[:, np.newaxis]


def _inverses(g: int) -> NDArray[np.int64]:
    """Return the inverse of each element of F_g, shape (g,); 0 for 0."""
    inverse = [0, 1]
    for element in range(2, g):
        inverse.append(-(g // element) * inverse[g % element] % g)
    return np.array(inverse, dtype=np.int64)


def _centred(elements: NDArray[np.int64], g: int) -> NDArray[np.int64]:
    """Return the representatives of least magnitude modulo g."""
    return (elements + g // 2) % g - g // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The critical count of a level: a prefix is kept if its count is above it."""

    reports: int
    candidates: int
    critical: float

    @classmethod
    def of(cls, reports: int, candidates: int, buckets: int, *, last: bool) -> Self:
        """Allow few false prefixes: in expectation 1 of all candidates at the last level."""
        allowed = _EXPECTED_FALSE if last else _ALLOWED_FALSE
        tail = min(_MAX_TAIL, allowed / max(candidates, BYTES))
        return cls(
            reports=reports,
            candidates=candidates,
            critical=float(stats.binom.isf(tail, reports, 1 / buckets)),
        )

    def passes(self, chance: float) -> float:
        """Return the probability to be kept, if a report supports the prefix with this chance."""
        return float(stats.binom.sf(self.critical, self.reports, chance))


def planned_thresholds(n_users: int, lengths: Sequence[int], buckets: int) -> tuple[Threshold, ...]:
    """Return the thresholds to expect: about as many candidates at each level as at the first."""
    candidates = BYTES ** max(2, lengths[0])
    return tuple(
        Threshold.of(n_users // len(lengths), candidates, buckets, last=length == lengths[-1])
        for length in lengths
    )


def sure_share(thresholds: Sequence[Threshold], p: float, q: float) -> float:
    """Return the share from which a value passes all levels with probability .95; at most 1."""

    def excess(share: float) -> float:
        chances = [each.passes(q + (p - q) * share) for each in thresholds]
        return float(np.prod(chances)) - SURE

    if excess(1.0) <= 0:
        return 1.0
    return float(optimize.brentq(excess, 0.0, 1.0, xtol=1e-9))


def find_codes(mechanism: PrefixHashing, reports: Reports, *, text: bool) -> FoundValues:
    """
    Find the codes that many users hold; `text`: codes are texts, ended by zero bytes.

    Cost: 3 ns for each report and prefix that its level extends, some hundreds: seconds for a
    million reports, and half a minute for five.
    """
    g, thresholds, kept_numbers = mechanism.buckets, list[Threshold](), list[int]()
    others = len(mechanism.columns[0]) - 1
    prefixes = np.indices((BYTES,) * others).reshape(others, BYTES**others).T
    counts = np.zeros(0, dtype=np.int64)
    for level in range(mechanism.levels):
        of_level = LevelReports.of(reports, mechanism, level)
        supports = of_level.next_counts(prefixes, g)
        allowed = np.ones(supports.shape, dtype=np.bool_)
        if text and prefixes.shape[1]:
            allowed[prefixes[:, -1] == 0, 1:] = False
        last, candidates = level == mechanism.levels - 1, int(allowed.sum())
        threshold = Threshold.of(of_level.number, candidates, g, last=last)
        rows, following = np.nonzero(allowed & (supports > threshold.critical))
        counts = supports[rows, following]
        best = np.argsort(-counts, kind="stable")[:MAX_KEPT]
        counts = counts[best]
        prefixes = np.column_stack([prefixes[rows[best]], following[best]])
        thresholds.append(threshold)
        kept_numbers.append(len(prefixes))
    values = [bytes(row) for row in prefixes.astype(np.uint8)]
    fine = np.array([not text or _is_text(value) for value in values], dtype=np.bool_)
    shares, errors = estimates(mechanism, counts[fine], thresholds[-1].reports)
    return FoundValues(
        values=tuple(value for value, good in zip(values, fine, strict=True) if good),
        shares=shares,
        standard_errors=errors,
        reports=np.array([each.reports for each in thresholds]),
        kept=np.array(kept_numbers),
        critical_shares=critical_shares(mechanism, thresholds),
        sure_share=sure_share(thresholds, mechanism.p, mechanism.q),
        expected_false=thresholds[-1].candidates * thresholds[-1].passes(mechanism.q),
    )


def _is_text(value: bytes) -> bool:
    try:
        return bool(value.rstrip(b"\0").decode())
    except UnicodeDecodeError:
        return False


def estimates(
    mechanism: PrefixHashing, counts: Counts | Vector, reports: float
) -> tuple[Vector, Vector]:
    """Return unbiased shares from counts of supporting reports, and their standard errors."""
    signal, support = mechanism.p - mechanism.q, counts / max(1, reports)
    shares: Vector = (support - mechanism.q) / signal
    chances = mechanism.q + signal * np.clip(shares, 0, 1)
    return shares, np.sqrt(chances * (1 - chances) / max(1, reports)) / signal


def critical_shares(mechanism: PrefixHashing, thresholds: Sequence[Threshold]) -> Vector:
    """Return the estimated share from which each level keeps a prefix; at most 1."""
    least = [
        estimates(mechanism, np.array([each.critical + 1]), each.reports)[0] for each in thresholds
    ]
    return np.minimum(np.concatenate(least), 1.0)
