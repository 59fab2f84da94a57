"""A simulated collection with fake users, counted and estimated by the deployed code."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from analyzer.finalize import mixture_of
from common.mechanisms.base import Counts, Mechanism, Reports
from common.mechanisms.hashing.string_hashing import StringHashing
from common.task.task import Task
from deploy.audit.attacks.leverage import Leverage, leverage
from deploy.audit.subject import AuditSubject
from deploy.simulate.collection import Counted, count, made_one_by_one
from shuffler.dummies import draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

FAKE_SHARE: Final = 0.05
"""λ, as in [CJG21]."""
_MOST_TARGETS: Final = 10
_FEWEST_USERS: Final = 100
_MOST_USERS: Final = 200_000
_MOST_PAIRS: Final = 20_000_000
"""Most pairs of report and candidate string to hash."""
_ZIPF: Final = 1.1
_REL_TOL: Final = 1e-9
"""Rounding of sums in 53 bits."""


@dataclass(kw_only=True, eq=False)
class PoisonedCollection:
    """Honest users, counted, and the reports that fake users have added so far."""

    task: Task
    mechanism: Mechanism
    users: Counts
    """Honest users by item."""
    n_fakes: int
    honest: Counted
    leverage: Leverage
    fake: Counted
    weight: float = 0.0
    """Total weight of the fake reports."""
    mean: float = 0.0
    """Mean of that weight, by the formula."""
    variance: float = 0.0
    """Upper bound of its variance."""

    @classmethod
    def of(cls, subject: AuditSubject, rng: np.random.Generator) -> Self:
        """
        Draw honest users from a Zipf law; the rarest items are the targets.

        Cost: a simulated collection, tenths of a second.
        """
        task, mechanism = subject.task, subject.mechanism
        n_users = max(_FEWEST_USERS, min(subject.n_users, _most_users(task, mechanism)))
        n_fakes = max(1, round(FAKE_SHARE * n_users))
        popularity = np.arange(1, task.domain_size + 1, dtype=np.float64) ** -_ZIPF
        users = rng.multinomial(n_users - n_fakes, popularity / popularity.sum())
        r = min(_MOST_TARGETS, task.domain_size // 2)
        targets = np.arange(task.domain_size - r, task.domain_size, dtype=np.int64)
        one_by_one = made_one_by_one(task, int(users.sum()))
        honest = count(task, mechanism, users, rng, one_by_one=one_by_one)
        return cls(
            task=task,
            mechanism=mechanism,
            users=users,
            n_fakes=n_fakes,
            honest=honest,
            leverage=leverage(task, mechanism, targets, rng),
            fake=Counted(cells=np.zeros_like(honest.cells), n_reports=0),
        )

    def without_fakes(self) -> Self:
        """Return the same honest users, before any fake report."""
        nothing = Counted(cells=np.zeros_like(self.honest.cells), n_reports=0)
        return replace(self, fake=nothing, weight=0.0, mean=0.0, variance=0.0)

    @property
    def n_honest(self) -> int:
        """Honest users."""
        return int(self.users.sum())

    @property
    def n_users(self) -> int:
        """All users."""
        return self.n_honest + self.n_fakes

    @property
    def share(self) -> float:
        """λ, exactly."""
        return self.n_fakes / self.n_users

    @property
    def held(self) -> float:
        """f_T, the targets' share among honest users."""
        return float(self.users[self.leverage.targets].sum()) / self.n_honest

    @property
    def further(self) -> float:
        """Counted reports of each fake user beside the first."""
        return self.fake.n_reports / (self.task.shuffler.kept * self.n_fakes) - 1

    def add_drawn(self, reports: Reports, mean: float, rng: np.random.Generator) -> None:
        """
        Add reports that were drawn at random.

        The variance of a weight between low and high with mean μ is at most (high-μ)(μ-low) [BD00].

        Args:
            reports: Shape (n,).
            mean: Mean weight of each.
            rng: Draws which of them the shuffler keeps.
        """
        lever = self.leverage
        kept = reports[draw_kept(self.task.shuffler, len(reports), rng)]
        self._add(self.mechanism.tally(kept), len(kept), lever.weigh(self.mechanism, kept), mean)
        self.variance += len(kept) * max(0.0, (lever.high - mean) * (mean - lever.low))

    def add_copies(
        self, report: Reports, weight: float, copies: int, rng: np.random.Generator
    ) -> None:
        """Add copies of a report with this weight, each sealed separately."""
        number = int(rng.binomial(copies, self.task.shuffler.kept))
        self._add(number * self.mechanism.tally(report), number, number * weight, weight)

    def add_honest_dummies(self, rng: np.random.Generator) -> None:
        """Add the dummies of fake users who draw them honestly."""
        law = self.task.dummies
        if law.uniform:
            total = int(draw_dummy_counts(law, self.n_fakes, rng).sum())
            dummies = self.mechanism.dummies(total, rng)
        else:
            dummies = np.concatenate(
                [draw_dummies(self.mechanism, law, rng) for _ in range(self.n_fakes)]
            )
        self.add_drawn(dummies, self.leverage.dummy_floor, rng)

    def _add(self, cells: Counts, number: int, weight: float, mean: float) -> None:
        self.fake = Counted(cells=self.fake.cells + cells, n_reports=self.fake.n_reports + number)
        self.weight += weight
        self.mean += number * mean

    def count_twice(self) -> None:
        """Count every fake report twice: a weakness that the audit must notice."""
        self.fake = Counted(cells=2 * self.fake.cells, n_reports=self.fake.n_reports)

    @cached_property
    def before(self) -> float:
        """The targets' estimated share among honest users."""
        return self._estimated(self.honest, self.n_honest)

    @property
    def batch(self) -> Counted:
        """What the analyzer counts of all users."""
        return Counted(
            cells=self.honest.cells + self.fake.cells,
            n_reports=self.honest.n_reports + self.fake.n_reports,
        )

    @property
    def rise(self) -> float:
        """Rise of the targets' estimated share."""
        return self._estimated(self.batch, self.n_users) - self.before

    @property
    def rises_by_the_weight(self) -> bool:
        """
        Whether the estimate moves by the weight of the fake reports, to the last digits.

        The honest reports are the same in both estimates, so their noise cancels.
        """
        lever, kept = self.leverage, self.task.shuffler.kept
        own = kept * self.n_fakes
        floors = own * lever.own_floor + (self.fake.n_reports - own) * lever.dummy_floor
        before = kept * lever.signal * self.n_honest * self.before
        after = kept * lever.signal * self.n_users * (self.before + self.rise)
        size = abs(before) + abs(after) + abs(floors) + abs(self.weight) + 1
        return abs(after - before + floors - self.weight) <= _REL_TOL * size

    @property
    def p_weight(self) -> float:
        """
        Bound the probability of a total weight at least as far from its mean.

        Bernstein's inequality: 2·exp(-t² / 2(V + b·t/3)) for t off the mean, variance at most V and
        draws within b of their means [BLM13, Section 2.8].
        """
        off, reach = abs(self.weight - self.mean), self.leverage.high - self.leverage.low
        if off <= _REL_TOL * (1 + abs(self.mean)):
            return 1.0
        return min(1.0, 2 * math.exp(-(off**2) / (2 * (self.variance + reach * off / 3))))

    def _estimated(self, counted: Counted, n_users: int) -> float:
        mixture = mixture_of(self.task, n_users, counted=counted.n_reports)
        return float(self.mechanism.debias(counted.cells, mixture)[self.leverage.targets].sum())


def _most_users(task: Task, mechanism: Mechanism) -> int:
    """Return how many users' reports can be counted in a second."""
    if not isinstance(mechanism, StringHashing):
        return _MOST_USERS
    pairs = mechanism.domain_size * (1 + task.dummies.expected_per_user)
    return max(1000, min(_MOST_USERS, int(_MOST_PAIRS / pairs)))
