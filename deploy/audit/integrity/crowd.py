"""A collection from users of whom some are fake, counted and estimated by the deployed code."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np

from analyzer.estimation.histogram import estimate
from analyzer.finalize import mixture_of
from common.mechanisms.base import Counts, Mechanism, Mixture, Reports
from common.mechanisms.hashing.string_hashing import StringHashing
from common.protocols import Refinement
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.integrity.bounded_sum import BoundedSum
from deploy.audit.integrity.leverage import Leverage, leverage
from deploy.simulate.collection import Counted, count, made_one_by_one
from shuffler.dummies import draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

FAKE_SHARE: Final = 0.05
"""λ, of all users; what [CJG21] takes too."""
_MOST_TARGETS: Final = 10
_FEWEST_USERS: Final = 100
_MOST_USERS: Final = 200_000
_MOST_PAIRS: Final = 20_000_000
"""Pairs of report and candidate string that are hashed for one crowd."""
_ZIPF: Final = 1.1
_EXACT: Final = 1e-9
"""Relative: what rounding may come to, and no wrong formula does."""
_REPORTS_A_CELL: Final = 60
"""Refining by maximum likelihood takes some seconds for 30,000 cells."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Crowd:
    """Honest users who have answered, and what fake ones among them would do."""

    task: Task
    mechanism: Mechanism
    users: Counts
    """Honest ones by item."""
    n_fakes: int
    counted: Counted
    """Of the honest ones."""
    leverage: Leverage
    most_cells: int
    """That are refined by maximum likelihood."""

    @classmethod
    def of(cls, audited: Audited, rng: np.random.Generator) -> Self:
        """
        Draw one: users by a Zipf law, of which the rarest items are the targets.

        Cost: a collection; tenths of a second.
        """
        task, mechanism = audited.task, audited.mechanism
        n_users = max(_FEWEST_USERS, min(audited.n_users, _most_users(task, mechanism)))
        n_fakes = max(1, round(FAKE_SHARE * n_users))
        popularity = np.arange(1, task.domain_size + 1, dtype=np.float64) ** -_ZIPF
        users = rng.multinomial(n_users - n_fakes, popularity / popularity.sum())
        r = min(_MOST_TARGETS, task.domain_size // 2)
        targets = np.arange(task.domain_size - r, task.domain_size, dtype=np.int64)
        return cls(
            task=task,
            mechanism=mechanism,
            users=users,
            n_fakes=n_fakes,
            counted=count(
                task, mechanism, users, rng, one_by_one=made_one_by_one(task, int(users.sum()))
            ),
            leverage=leverage(task, mechanism, targets, rng),
            most_cells=audited.effort.reports // _REPORTS_A_CELL,
        )

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
        """λ."""
        return self.n_fakes / self.n_users

    @property
    def held(self) -> float:
        """f_T: the targets' share among honest users."""
        return float(self.users[self.leverage.targets].sum()) / self.n_honest

    @cached_property
    def before(self) -> float:
        """What the estimator says of the targets together, of the honest users alone."""
        return self.estimated(self.counted, self.n_honest)

    def nothing(self) -> "Poison":
        """Begin with no reports of fake users."""
        return Poison(
            crowd=self,
            cells=np.zeros_like(self.counted.cells),
            law=BoundedSum(low=self.leverage.low, high=self.leverage.high),
        )

    def estimated(self, counted: Counted, n_users: int) -> float:
        """Say what the estimator says of the targets together."""
        shares = self.mechanism.debias(counted.cells, self._mixture(counted, n_users))
        return float(shares[self.leverage.targets].sum())

    @property
    def refinement(self) -> Refinement:
        """The task's; where that would take minutes over so many cells, a projection."""
        slow = self.task.refinement in {"em", "ems"} and len(self.counted.cells) > self.most_cells
        return "norm-sub" if slow else self.task.refinement

    def refined(self, counted: Counted, n_users: int) -> float:
        """Say what the refined estimate says of them."""
        histogram = estimate(
            self.mechanism,
            counted.cells,
            mixture=self._mixture(counted, n_users),
            refinement=self.refinement,
        )
        return float(histogram.refined[self.leverage.targets].sum())

    def of_honest(self) -> tuple[float, BoundedSum]:
        """Give what the honest users' estimate comes to, times n·(p-q), and what it should be."""
        lever, kept = self.leverage, self.task.shuffler.kept
        # What is dropped weighs nothing.
        low, high = (lever.low, lever.high) if kept == 1 else (min(0.0, lever.low), lever.high)
        law = BoundedSum(low=low, high=max(low, high))
        holders = self.held * self.n_honest
        law.add(holders, kept * lever.honest)
        law.add(self.n_honest - holders, kept * lever.own_floor)
        law.add_certain(-kept * self.n_honest * lever.own_floor)
        if self.task.shuffler.idle:
            n_dummies = self.counted.n_reports - self.n_honest
            law.add(n_dummies, lever.dummy_floor)
            law.add_certain(-n_dummies * lever.dummy_floor)
        else:
            r, most = len(lever.targets), self.task.shuffler.most
            law.add_drawn(0.0, r * self.task.shuffler.moments()[1], float(most))
        return kept * lever.signal * self.n_honest * self.before, law

    def _mixture(self, counted: Counted, n_users: int) -> Mixture:
        return mixture_of(self.task, n_users, counted=counted.n_reports)


@dataclass(slots=True, kw_only=True, eq=False)
class Poison:
    """What fake users send, counted; what it weighs, and what it should on average."""

    crowd: Crowd
    cells: Counts
    law: BoundedSum
    counted: int = 0
    """Reports that the shuffler kept."""
    weight: float = 0.0
    """Of all of these together."""

    def add(self, reports: Reports, mean: float, rng: np.random.Generator) -> None:
        """Add reports that were drawn, each of this weight on average."""
        crowd = self.crowd
        kept = reports[draw_kept(crowd.task.shuffler, len(reports), rng)]
        self.cells = self.cells + crowd.mechanism.tally(kept)
        self.counted += len(kept)
        self.weight += crowd.leverage.weigh(crowd.mechanism, kept)
        self.law.add(len(kept), mean)

    def add_copies(
        self, report: Reports, weight: float, copies: int, rng: np.random.Generator
    ) -> None:
        """Add the same report many times, each sealed anew: counting is linear."""
        number = int(rng.binomial(copies, self.crowd.task.shuffler.kept))
        self.cells = self.cells + number * self.crowd.mechanism.tally(report)
        self.counted += number
        self.weight += number * weight
        self.law.add_certain(number * weight)

    def add_dummies(self, rng: np.random.Generator) -> None:
        """Add the dummies of users who are honest about them."""
        crowd, law = self.crowd, self.crowd.task.dummies
        if law.uniform:
            total = int(draw_dummy_counts(law, crowd.n_fakes, rng).sum())
            dummies = crowd.mechanism.dummies(total, rng)
        else:
            dummies = np.concatenate(
                [draw_dummies(crowd.mechanism, law, rng) for _ in range(crowd.n_fakes)]
            )
        self.add(dummies, crowd.leverage.dummy_floor, rng)

    @property
    def batch(self) -> Counted:
        """What the analyzer counts of everybody."""
        honest = self.crowd.counted
        return Counted(cells=honest.cells + self.cells, n_reports=honest.n_reports + self.counted)

    @property
    def after(self) -> float:
        """What the estimator says of the targets together."""
        return self.crowd.estimated(self.batch, self.crowd.n_users)

    def surplus(self, own: float, each: float) -> float:
        """
        Say by how much drawing lifted the targets' shares: what Leverage.gain has no word of.

        Args:
            own: Weight that each fake user's first report has on average, if it is kept.
            each: Of every further one.
        """
        crowd, kept = self.crowd, self.crowd.task.shuffler.kept
        first = kept * crowd.n_fakes
        mean = first * own + (self.counted - first) * each
        return (self.weight - mean) / (kept * crowd.leverage.signal * crowd.n_users)

    @property
    def is_weighed(self) -> bool:
        """
        Whether the estimator moves by what the fake reports weigh, and by nothing else.

        The honest users' reports are the same with and without them, so that nothing of their noise
        is left: the two estimates differ by what is calculated, to the last digits.
        """
        crowd, lever, kept = self.crowd, self.crowd.leverage, self.crowd.task.shuffler.kept
        own = kept * crowd.n_fakes
        floors = own * lever.own_floor + (self.counted - own) * lever.dummy_floor
        scale = kept * lever.signal
        before, after = crowd.n_honest * crowd.before, crowd.n_users * self.after
        size = scale * (abs(before) + abs(after)) + abs(floors) + abs(self.weight) + 1
        return abs(scale * (after - before) + floors - self.weight) <= _EXACT * size


def _most_users(task: Task, mechanism: Mechanism) -> int:
    """Give how many users' reports can be counted in a second."""
    if not isinstance(mechanism, StringHashing):
        return _MOST_USERS
    pairs = mechanism.domain_size * (1 + task.dummies.expected_per_user)
    return max(1000, min(_MOST_USERS, int(_MOST_PAIRS / pairs)))
