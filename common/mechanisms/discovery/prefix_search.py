"""
Find frequent codes in reports of prefix hashing, byte by byte, and spell texts. By the analyzer.

A level's reports on a prefix that nobody holds support it with probability 1/g each, independently:
its count is binomial. A prefix is kept if its count exceeds the critical count of its level. The
next level's reports are then solved for the next byte of each kept prefix, which costs one product
for each pair of report and prefix instead of 256.

A text whose hash was found is spelled from reports on its bytes: at each position they support a
byte of each text. The texts are tried in the order of their total support, until one has the hash.
"""

import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffledp.common.mechanisms.base import Counts, Reports, Vector
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing, code_of
from shuffledp.common.mechanisms.hashing.finite_field import inverses
from shuffledp.common.messages.result import FoundValues

BYTES: Final = 256
_MAX_KEPT: Final = 8192
"""Maximum number of prefixes kept at a level, the most frequent ones. More can pass only if
dishonest users send reports that support very many values."""
_ALLOWED_FALSE: Final = 50.0
"""Expected number of prefixes that nobody holds and that a level keeps, before the last level."""
_EXPECTED_FALSE: Final = 1.0
"""The same number for the last level, whose prefixes are the values found."""
SURE: Final = 0.95
"""Probability with which a value of the stated share is found."""
_THREADS: Final = os.cpu_count() or 1
_CHUNK: Final = 1 << 17
"""Pairs of report and prefix that are solved at a time, to fit into the cache."""
_MIN_COLUMNS: Final = 256
_ROUNDS: Final = 2
"""Rounds of estimating frequent values and correcting the counts of their neighbours."""
_TINY: Final = 1e-9
"""More than the rounding error of a count."""
_REPEATED: Final = 1e-9
"""Probability with which multiples of an honest user's seed and bucket are left out."""
_MOST_TRIES: Final = 20_000
"""Maximum number of texts tried for a hash: .3 s, or a second for texts of 255 bytes."""
_MOST_TRIES_IN_ALL: Final = 1_000_000
_CHOICES: Final = 24
"""Bytes tried at each position, the best supported ones."""


def usable(mechanism: PrefixHashing, reports: Reports, level: int) -> Reports:
    """
    Return a level's reports without those that dishonest users could multiply their weight with.

    A seed with a 0 may support many values at once, and multiples of one seed and bucket support
    the same values. So reports with a 0 in their seed are left out, and all multiples that are more
    than honest users ever send (probability _REPEATED each), even if all hold one value.

    Two values that differ in one element then never collide; see `neighbour_shares`.
    """
    g, used = mechanism.buckets, [each for each in mechanism.columns[level] if each >= 0]
    chosen = reports[reports["level"] == level]
    chosen = chosen[(chosen["seed"][:, : len(used)] > 0).all(axis=1)]
    seeds = chosen["seed"][:, : len(used)].astype(np.int64)
    inverse = inverses(g)[seeds[:, -1]]
    rows = np.column_stack([seeds[:, :-1], chosen["bucket"]]) * inverse[:, np.newaxis] % g
    whole = np.ascontiguousarray(rows, dtype=np.uint16).view(f"V{2 * rows.shape[1]}").ravel()
    _, place, repeats = np.unique(whole, return_inverse=True, return_counts=True)
    most = 1 + scipy.stats.binom.isf(_REPEATED, len(chosen), (g - 1.0) ** (1 - len(used)))
    return np.asarray(chosen[repeats[place] <= most])


def next_counts(mechanism: PrefixHashing, reports: Reports, prefixes: NDArray[np.int64]) -> Counts:
    """
    Count usable reports of one level that support each prefix, (prefixes, others), with each byte.

    A report supports the byte (bucket - Σ seed·prefix) / last seed element mod g, if that is a
    byte. Sums are whole numbers that floats hold exactly; added to 1/2, they are far enough from
    the multiples of g for the rounding of a division. Returns counts of shape (prefixes, 256).
    Cost: about 4 ns per report and prefix.
    """
    g, (kept, others) = mechanism.buckets, prefixes.shape
    elements, buckets = reports["seed"].astype(np.int64), reports["bucket"].astype(np.int64)
    inverse = inverses(g)[elements[:, others]]
    solved_seeds = (elements[:, :others] * inverse[:, np.newaxis] % g).astype(np.float64)
    solved_buckets = buckets * inverse % g + 0.5
    step, matrix = max(_MIN_COLUMNS, _CHUNK // max(1, kept)), prefixes.astype(np.float64)

    def count(starts: Sequence[int]) -> Counts:
        total = np.zeros(kept * BYTES, dtype=np.int64)
        for start in starts:
            solved = solved_buckets[start : start + step] - (
                matrix @ solved_seeds[start : start + step].T
            )
            solved -= np.floor(solved / g) * g
            flat = solved.ravel()
            found = np.flatnonzero(flat < BYTES)
            cells = found // solved.shape[1] * BYTES + flat[found].astype(np.int64)
            total += np.bincount(cells, minlength=len(total))
        return total

    starts = range(0, len(solved_buckets), step)
    with ThreadPoolExecutor(_THREADS) as pool:  # numpy releases the interpreter's lock
        shares = pool.map(count, [starts[first::_THREADS] for first in range(_THREADS)])
        counts: Counts = np.sum(list(shares), axis=0)
    return counts.reshape(kept, BYTES)


def neighbour_shares(prefixes: NDArray[np.int64], shares: Vector) -> Vector:
    """
    Return the total share of values that differ in one element from each prefix with each byte.

    Usable reports of their holders support the value with probability (1 - p) / (g - 1), not 1/g,
    which takes 1 / (g - 1) of the neighbours' share off its estimate. Values that differ in more
    elements collide with probability 1/g, up to a factor of 1 ± 1 / (g - 1).

    Shapes (prefixes, others), (prefixes, 256) and (prefixes, 256).
    """
    total: Vector = shares.sum(axis=1, keepdims=True) - shares
    for place in range(prefixes.shape[1]):
        rest = np.delete(prefixes, place, axis=1)
        _, same = np.unique(rest, axis=0, return_inverse=True)
        sums = np.zeros_like(shares)
        np.add.at(sums, same.ravel(), shares)
        total += sums[same.ravel()] - shares
    return total


def corrected_counts(
    mechanism: PrefixHashing,
    prefixes: NDArray[np.int64],
    supports: Counts,
    n_reports: int,
    least: float,
) -> Vector:
    """
    Return counts of supporting reports, (prefixes, 256), as if neighbours collided like others.

    Neighbours count if more than `least` reports support them.
    """
    counts: Vector = supports.astype(np.float64)
    lost = n_reports * (mechanism.p - mechanism.q) / (mechanism.buckets - 1)
    for _ in range(_ROUNDS):
        shares, _ = estimates(mechanism, counts, n_reports)
        frequent = np.where(counts > least, shares, 0.0)
        frequent /= max(1.0, frequent.sum())  # more than 1 is crafted
        counts = supports + lost * neighbour_shares(prefixes, frequent)
    return counts


def critical_count(reports: int, candidates: int, buckets: int, *, last: bool) -> float:
    """
    Return the count above which a level keeps a prefix.

    It lets few prefixes pass that nobody holds: in expectation 1 of all at the last level.
    """
    allowed = _EXPECTED_FALSE if last else _ALLOWED_FALSE
    return float(scipy.stats.binom.isf(allowed / max(candidates, BYTES), reports, 1 / buckets))


def sure_share(mechanism: PrefixHashing, numbers: Counts, critical: Sequence[float]) -> float:
    """Return the share from which a value passes all levels with probability .95; at most 1."""

    def excess(share: float) -> float:
        chance = mechanism.q + (mechanism.p - mechanism.q) * share
        return float(np.prod(scipy.stats.binom.sf(critical, numbers, chance))) - SURE

    if excess(1.0) <= 0:
        return 1.0
    return float(scipy.optimize.brentq(excess, 0.0, 1.0, xtol=1e-9))


def find_codes(mechanism: PrefixHashing, reports: Reports, *, text: bool) -> FoundValues:
    """
    Find the codes that many users hold; `text`: codes are texts, ended by zero bytes.

    Cost: 4 ns for each report and prefix that its level extends, some hundreds: seconds for a
    million reports, and half a minute for five.
    """
    g, critical, overfull = mechanism.buckets, list[float](), False
    by_level = [usable(mechanism, reports, level) for level in range(mechanism.levels)]
    numbers = np.array([len(each) for each in by_level])
    others = sum(column >= 0 for column in mechanism.columns[0]) - 1
    prefixes = np.indices((BYTES,) * others).reshape(others, BYTES**others).T
    counts = np.zeros(0)
    for level, number in enumerate(numbers.tolist()):
        counted = next_counts(mechanism, by_level[level], prefixes)
        allowed = np.ones(counted.shape, dtype=np.bool_)
        if text and prefixes.shape[1]:
            allowed[prefixes[:, -1] == 0, 1:] = False
        last = level == mechanism.levels - 1
        candidates = int(allowed.sum())
        critical.append(critical_count(number, candidates, g, last=last))
        supports = corrected_counts(mechanism, prefixes, counted, number, critical[-1])
        # Whole numbers, as the critical counts: a small correction alone lets no value pass.
        rows, following = np.nonzero(allowed & (np.floor(supports + _TINY) > critical[-1]))
        counts = supports[rows, following]
        best = np.argsort(-counts, kind="stable")[:_MAX_KEPT]
        counts, overfull = counts[best], overfull or len(rows) > _MAX_KEPT
        prefixes = np.column_stack([prefixes[rows[best]], following[best]])
    values = map(bytes, prefixes.astype(np.uint8))
    found = dict(zip(values, counts.tolist(), strict=True))
    if text:
        encoded = {value: value.decode(errors="ignore").encode() for value in found}
        found = {value: found[value] for value in found if any(value) and value == encoded[value]}
    n_reports = int(numbers[-1])
    least, _ = estimates(mechanism, np.array(critical) + 1, np.maximum(numbers, 1))
    return found_values(
        mechanism,
        reports,
        numbers,
        critical,
        found,
        n_reports=n_reports,
        least_share=float(np.clip(least.max(), 0.0, 1.0)),
        expected_false=candidates * float(scipy.stats.binom.sf(critical[-1], n_reports, 1 / g)),
        overfull=overfull,
    )


def found_values(
    mechanism: PrefixHashing,
    reports: Reports,
    numbers: Counts,
    critical: Sequence[float],
    supports: Mapping[bytes, float],
    *,
    n_reports: int,
    least_share: float = 0.0,
    expected_false: float = 0.0,
    overfull: bool = False,
) -> FoundValues:
    """
    Complete a result, from the number of `n_reports` usable reports that support each value.

    `numbers` are the usable reports of each level, and `critical` the counts above which a value is
    found, or at least likely to be.
    """
    values = sorted(supports, key=lambda value: -supports[value])
    counts = np.array([supports[value] for value in values], dtype=np.float64)
    shares, errors = estimates(mechanism, counts, n_reports)
    within = np.clip(shares, 0, 1)  # the users whose reports count are drawn from all
    squares = errors**2 - within * (1 - within) / max(1, len(reports))
    return FoundValues(
        values=tuple(values),
        shares=shares,
        standard_errors=np.sqrt(np.maximum(squares, 0.0)),
        reports=np.bincount(reports["level"], minlength=mechanism.levels),
        sure_share=sure_share(mechanism, numbers, critical),
        least_share=least_share,
        expected_false=expected_false,
        overfull=overfull,
    )


def estimates(
    mechanism: PrefixHashing, counts: Counts | Vector, reports: float | Vector
) -> tuple[Vector, Vector]:
    """
    Return unbiased shares from counts of supporting reports, and their standard errors.

    Errors are those of shares among infinitely many users, of whom these reports are a sample.
    """
    signal, support = mechanism.p - mechanism.q, counts / np.maximum(1, reports)
    shares: Vector = (support - mechanism.q) / signal
    chances = mechanism.q + signal * np.clip(shares, 0, 1)
    return shares, np.sqrt(chances * (1 - chances) / np.maximum(1, reports)) / signal


def spell(mechanism: PrefixHashing, reports: Reports, codes: Sequence[str]) -> FoundValues:
    """
    Find the texts of these hashes, in hexadecimal.

    A text whose bytes all exceed the critical count of their level is found, by experience: few
    other bytes do, so that it is among the first texts tried. Cost: as `find_codes`, and up to a
    second for each hash, but no more than a minute.
    """
    labels = np.arange(1, len(codes) + 1)[:, np.newaxis]
    kept = [usable(mechanism, reports, level) for level in range(mechanism.levels)]
    by_level = [next_counts(mechanism, each, labels).astype(np.int32) for each in kept]
    tries = min(_MOST_TRIES, _MOST_TRIES_IN_ALL // max(1, len(codes)))
    supports = dict[bytes, float]()
    for code, counts in zip(codes, np.stack(by_level, axis=1), strict=True):
        for text in islice(_best_texts(counts), tries):
            if code_of(text, len(code) // 2).hex() == code:
                padded = text.ljust(mechanism.levels, b"\0")
                supports[text] = int(counts[np.arange(len(padded)), list(padded)].sum())
                break
    numbers = np.array([len(each) for each in kept])
    supports = _corrected_supports(mechanism, supports, numbers)
    critical = [
        critical_count(number, BYTES, mechanism.buckets, last=True) for number in numbers.tolist()
    ]
    n_reports = int(numbers.sum())
    return found_values(mechanism, reports, numbers, critical, supports, n_reports=n_reports)


def _corrected_supports(
    mechanism: PrefixHashing, supports: Mapping[bytes, float], numbers: Counts
) -> dict[bytes, float]:
    """Correct supports: texts that share a byte differ in their label; see `neighbour_shares`."""
    counts = np.array([*supports.values()], dtype=np.float64)
    shares, _ = estimates(mechanism, counts, float(numbers.sum()))
    padded = [text.ljust(mechanism.levels, b"\0") for text in supports]
    for level, lost in enumerate(numbers * (mechanism.p - mechanism.q) / (mechanism.buckets - 1)):
        own = np.array([text[level] for text in padded], dtype=np.int64)
        counts += lost * (np.bincount(own, shares, BYTES)[own] - shares)
    return dict(zip(supports, counts.tolist(), strict=True))


def _best_texts(counts: NDArray[Any]) -> Iterator[bytes]:
    """
    Yield byte strings by falling support, counts of shape (positions, 256).

    A string of length k has the support of its bytes and, from position k on, of zero bytes. Of
    the strings of one length, the best one comes first. Each later one differs from an earlier one
    by the next best byte at the last position changed, or at one after it.
    """
    ranked = np.argsort(-counts[:, 1:], axis=1, kind="stable")[:, :_CHOICES] + 1
    support = np.take_along_axis(counts, ranked, axis=1)
    ends = np.concatenate([np.cumsum(counts[::-1, 0])[::-1], [0]])
    best = np.concatenate([[0], np.cumsum(support[:, 0])])
    heap: list[tuple[int, int, tuple[int, ...], int]] = [
        (-int(best[length] + ends[length]), length, (0,) * length, 0)
        for length in range(len(counts) + 1)
    ]
    heapq.heapify(heap)
    while heap:
        cost, length, choices, first = heapq.heappop(heap)
        yield bytes(int(ranked[place, choice]) for place, choice in enumerate(choices))
        for place in range(first, length):
            following = choices[place] + 1
            if following < _CHOICES:
                lost = int(support[place, following - 1] - support[place, following])
                changed = (*choices[:place], following, *choices[place + 1 :])
                heapq.heappush(heap, (cost + lost, length, changed, place))
