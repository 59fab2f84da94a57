"""
The accounting of users' dummies, one row for each distribution, and dummies that arrived.

If somebody kept submissions from the shuffler by their length, dummies no longer follow the task's
distribution. No value enters lengths, though, and given its length a submission's dummies are
drawn as ever. Of all users any may be the honest ones: the worst choice counts. The proof is in
docs/theory/accounting.md. Run by the analyzer, by devices, operators and planners.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.accounting import count_distributions
from shuffledp.common.accounting.binomial import RELATIVE_ERROR
from shuffledp.common.accounting.cluster_noise import ClusterRelease, Fineness
from shuffledp.common.accounting.count_distributions import MAX_COUNT, Binomial, NegativeBinomial
from shuffledp.common.accounting.item_noise import each_item_release
from shuffledp.common.accounting.releases import Release
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.task import uniform_dummies
from shuffledp.common.task.cluster_dummies import CHANCE_SUM, ClusterDummies
from shuffledp.common.task.dummies import Dummies
from shuffledp.common.task.named_dummies import ItemDummies, ViewDummies
from shuffledp.common.task.uniform_dummies import BinomialDummies, NegativeBinomialDummies

_FEWER: Final = 2.0**-48
"""Probability charged if a length leaves the number of dummies of a kind to chance. Chernoff's
bound uses half of it, so that charges of several kinds, as if independent, cover their sum."""
_STEPS: Final = np.geomspace(1e-3, 30, 60)
"""Values of h that are tried. The bound holds for each, so the grid affects its tightness alone."""
_ROUNDING: Final = 1 - 1e-9
"""Factor for a sum of terms that are exact to some 1e-15 each."""
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

    def least(self, users: int) -> tuple[int, float]:
        """
        Return a number of dummies, and a bound on the chance that `users` of the users have fewer.

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


def _of_uniform(spec: Dummies, by_length: Sequence[int]) -> tuple[Arrivals, ...]:
    """Return the arrivals of uniform dummies; of one length, the certain ones."""
    # Padding fills up to the next length, so a length tells more than the one before.
    fixed = np.array([spec.per_user, *(length + 1 for length in spec.lengths[:-1])])
    return (_arrivals(by_length, fixed, np.ones((len(fixed), 1))),)


def _of_views(spec: ViewDummies, by_length: Sequence[int]) -> tuple[Arrivals, ...]:
    """Return the arrivals of each view's dummies, of which at most one is random."""
    counted = Counter(spec.views)
    laws = {each: each.length_probabilities() for each in counted}
    found, numbers = dict[BinomialDummies, Arrivals](), spec.maximum - spec.certain + 1
    for view, law in laws.items():
        others = np.ones(1)
        for each, number in (counted - Counter((view,))).items():
            for _ in range(number):
                others = np.convolve(others, laws[each])
        table = np.zeros((numbers, len(law)))
        for more, chance in enumerate(law):
            table[more : more + len(others), more] = chance * others
        found[view] = _arrivals(by_length, view.per_user, spec.by_length(table))
    return tuple(found[view] for view in spec.views)


def _of_clusters(spec: ClusterDummies, by_length: Sequence[int]) -> tuple[Arrivals, ...]:
    """Return the arrivals of each room; if `by_length` is empty, by the task's distribution."""
    rooms = [(k, room[0], room[1] / CHANCE_SUM) for k, room in enumerate(spec.rooms)]
    trials = [[*rooms, (-1, 0, 1 - spec.shown)]] * spec.trials
    tables = [_numbers_by_length(spec, trials, room) for room in range(len(rooms))]
    if not by_length:
        by_length, tables = [MAX_COUNT], [table.sum(axis=0, keepdims=True) for table in tables]
    return tuple(_arrivals(by_length, 0, table) for table in tables)


def _arrivals(by_length: Sequence[int], fixed: Vector | int, table: Vector) -> Arrivals:
    """Return the arrivals, from each length's probability with each number of further dummies."""
    table[:, 0] += table.sum(axis=1) < _LEAST_PROBABILITY
    return Arrivals(
        np.array(by_length, dtype=np.int64),
        np.full(len(table), fixed, dtype=np.float64),
        table / table.sum(axis=1, keepdims=True),
    )


def _numbers_by_length(
    spec: Dummies, trials: Sequence[Sequence[tuple[int, int, float]]], kind: int
) -> Vector:
    """
    Return the probability of each length with each random number of dummies of one kind.

    Each trial is a choice: of a kind or -1, of what it adds to the length, and its chance.
    """
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


_MIN_EVENT_PROBABILITY: Final = 1e-6
"""Minimum probability of the conditioning event; bounds for rarer events are useless."""


class DummyEntry(NamedTuple):
    """The accounting of one distribution; each function takes the dummies first."""

    arrivals: Callable[[Any, Sequence[int]], tuple[Arrivals, ...]]
    """Return the arrivals of each kind of dummies, from the submissions of each length."""
    total: Callable[[Any, int], count_distributions.CountDistribution] | None = None
    """Return the distribution of the number of users' random uniform dummies; None if none are."""
    release: Callable[[Any, int, MatchCountReduction, Fineness], Release] | None = None
    """Return one round hidden by the draws of dummies that name items; see `ClusterRelease.of`."""
    shown: (
        Callable[[Any, Sequence[tuple[int, float]], MatchCountReduction, Fineness], Release] | None
    ) = None
    """Return one round hidden by the rooms that arrived; see `ClusterRelease.of_shown`."""


def _binomial(spec: BinomialDummies, users: int) -> Binomial:
    return Binomial(min(users, MAX_COUNT // spec.trials) * spec.trials, spec.extra_probability)


def _negative_binomial(
    spec: NegativeBinomialDummies, users: int
) -> count_distributions.CountDistribution:
    """
    Return the total of users whose numbers X are each conditioned to be at most `most`.

    The event that this holds for all users has probability (1 - P(X > most))^users. If that is
    almost 0, no random dummies are counted, which can only raise the bound on δ.
    """
    users = min(users, MAX_COUNT // spec.trials)  # dummies of more users are not counted
    trials, chance = users * spec.trials, spec.extra_probability
    odds = chance / (1 - chance)
    of_one = NegativeBinomial(spec.trials, spec.trials * odds)
    redrawn = count_distributions.beyond(of_one, spec.most)
    missing = 1.0
    if redrawn < 1:
        missing = min(1.0, -math.expm1(users * math.log1p(-redrawn)) * (1 + RELATIVE_ERROR))
    if missing == 0:
        return NegativeBinomial(trials, trials * odds)
    if missing > 1 - _MIN_EVENT_PROBABILITY:
        return Binomial(0, 0.0)
    return count_distributions.Conditioned(NegativeBinomial(trials, trials * odds), missing)


_ENTRIES: Final[Mapping[type[Dummies], DummyEntry]] = {
    uniform_dummies.FixedDummies: DummyEntry(_of_uniform),
    uniform_dummies.FractionalDummies: DummyEntry(_of_uniform, total=_binomial),
    BinomialDummies: DummyEntry(_of_uniform, total=_binomial),
    NegativeBinomialDummies: DummyEntry(_of_uniform, total=_negative_binomial),
    ItemDummies: DummyEntry(
        _of_uniform, release=lambda spec, users, *_: each_item_release(spec, users)
    ),
    ClusterDummies: DummyEntry(
        _of_clusters, release=ClusterRelease.of, shown=ClusterRelease.of_shown
    ),
    ViewDummies: DummyEntry(_of_views),
}


def entry_of(dummies: Dummies) -> DummyEntry:
    """Return the entry of these dummies; raise AccountingError if their class has none."""
    if type(dummies) not in _ENTRIES:
        raise uncovered(dummies)
    return _ENTRIES[type(dummies)]


def uncovered(dummies: Dummies) -> AccountingError:
    """Return the error for dummies that no formula covers."""
    return AccountingError(f"no formula covers {dummies.distribution} dummies")


def arrivals_of(dummies: Dummies, by_length: Sequence[int]) -> tuple[Arrivals, ...]:
    """
    Return the arrivals of each kind of dummies: uniform, of each view, or in each room.

    If `by_length` is empty, lengths follow the task's distribution; only for clusters. Raises
    AccountingError unless there is a number for each of the lengths.
    """
    lengths = dummies.lengths
    if by_length and len(by_length) != len(lengths):
        raise AccountingError(
            f"{len(by_length)} lengths arrived; the task has {len(lengths)} lengths"
        )
    return entry_of(dummies).arrivals(dummies, by_length)
