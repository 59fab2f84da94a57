"""
Dummies that the submissions which arrived are sure to hold, by their lengths.

If somebody kept submissions from the shuffler by their length, dummies no longer follow the task's
distribution. No value enters lengths, though, and given its length a submission's dummies are
drawn as ever. Of all users any may be the honest ones: the worst choice counts. The proof is in
docs/theory/accounting.md. Run by the analyzer, and by operators who check results.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from common.accounting.count_distributions import MAX_COUNT
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.task.cluster_dummies import CHANCE_SUM, ClusterDummies
from common.task.dummy_forms import AnyDummies
from common.task.named_dummies import ItemDummies, LevelDummies
from common.task.uniform_dummies import UniformDummies

_FEWER: Final = 2.0**-48
"""Probability charged if a length leaves the number of dummies of a kind to chance. Chernoff's
bound uses half of it, so that charges of several kinds, as if independent, cover their sum."""
_STEPS: Final = np.geomspace(1e-3, 30, 60)
_ROUNDING: Final = 1 - 1e-9
_LEAST_PROBABILITY: Final = 1e-280
"""Rarer lengths count as without dummies, since rounding spoils their probabilities."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Submissions by length, and what a length tells of their dummies of one kind."""

    by_length: NDArray[np.int64]
    fixed: Vector
    """Dummies that a submission of each length has at least; same shape."""
    more: Vector
    """Probability of each number of further ones, given the length; shape (lengths, numbers)."""

    @classmethod
    def of(cls, spec: AnyDummies, by_length: Sequence[int]) -> "tuple[Self, ...]":
        """
        Return the arrivals of each kind of dummies: uniform, of each level, or in each room.

        If `by_length` is empty, lengths follow the task's distribution; only for clusters. Raises
        AccountingError unless there is a number for each of the lengths.
        """
        lengths, numbers = np.array(spec.lengths), np.array(by_length, dtype=np.int64)
        if by_length and len(by_length) != len(lengths):
            raise AccountingError(
                f"{len(by_length)} lengths arrived; the task has {len(lengths)} lengths"
            )
        if isinstance(spec, UniformDummies):
            # Padding fills up to the next length, so a length tells more than the one before.
            fixed = np.array([spec.per_user, *(lengths[:-1] + 1)], dtype=np.float64)
            return (cls(numbers, fixed, np.ones((len(lengths), 1))),)
        if isinstance(spec, ItemDummies):
            return ()  # all submissions have one length
        found, fewest = [], [each.per_user for each in spec.views]
        if isinstance(spec, ClusterDummies):
            fewest = [0] * len(spec.rooms)
        for kind, least in enumerate(fewest):
            table = _numbers_by_length(spec, kind)
            if not by_length:
                numbers, table = np.array([MAX_COUNT]), table.sum(axis=0, keepdims=True)
            table[:, 0] += table.sum(axis=1) < _LEAST_PROBABILITY
            fixed = np.full(len(table), float(least))
            found.append(cls(numbers, fixed, table / table.sum(axis=1, keepdims=True)))
        return tuple(found)

    def least(self, users: int) -> tuple[int, float]:
        """
        Return a number of dummies that any `users` of the users have, and the chance of fewer.

        By Chernoff's bound [BLM13, Section 2.2], a sum of independent X is at most
        (log(p) - Σ log E[exp(-hX)]) / h with probability at most p, for every h > 0.
        """
        numbers = np.arange(self.more.shape[1])
        sure = best = int(self._fewest(self.fixed + (self.more > 0).argmax(axis=1), users))
        for h in _STEPS.tolist():
            each = self.fixed - np.log(self.more @ np.exp(-h * numbers)) / h
            bound = self._fewest(each, users) * _ROUNDING + math.log(_FEWER / 2) / h
            best = max(best, math.ceil(bound))
        return min(best, MAX_COUNT), _FEWER if best > sure else 0.0

    def _fewest(self, each: Vector, users: int) -> float:
        """Return the sum of `each` length's number over the users with the smallest ones."""
        order = np.argsort(each)
        taken = np.minimum(np.cumsum(self.by_length[order]), users)
        return float(np.diff(taken, prepend=0) @ each[order])


def _numbers_by_length(spec: ClusterDummies | LevelDummies, kind: int) -> Vector:
    """Return the probability of each length with each random number of dummies of one kind."""
    if isinstance(spec, ClusterDummies):
        rooms = [(k, room[0], room[1] / CHANCE_SUM) for k, room in enumerate(spec.rooms)]
        trials = [[*rooms, (-1, 0, 1 - spec.shown)]] * spec.trials
    else:
        chances = [each.extra_probability for each in spec.views]
        trials = [[(level, 1, c), (-1, 0, 1 - c)] for level, c in enumerate(chances)]
    found = {(spec.certain, 0): 1.0}
    for options in trials:
        before, found = found, defaultdict[tuple[int, int], float](float)
        for (length, number), chance in before.items():
            for each, size, share in options:
                found[length + size, number + (each == kind)] += chance * share
    table = np.zeros((len(spec.lengths), len(trials) + 1))
    for (length, number), chance in found.items():
        if chance > 0:
            table[spec.lengths.index(length), number] = chance
    return table
