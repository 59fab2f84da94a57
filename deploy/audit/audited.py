"""What is audited: a task, as so many users would answer it."""

from dataclasses import dataclass
from functools import cached_property

from common.accounting.guarantees import Terms
from common.mechanisms.base import Mechanism
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.registry import mechanism_of
from common.task.task import Task


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is drawn. More sees smaller faults, and raises the ceilings."""

    games: int
    """Trials in each world of a game that is played on one person's messages."""
    crowds: int
    """Messages in each world of a game that is played on a whole batch."""
    reports: int
    """Reports of each kind in a test of a randomizer."""
    devices: int
    """Answers made whole, one by one, as a device does."""
    orders: int
    """Reports put in order in tests of the permutation."""
    users: int
    """Who take part in a collection over the running services."""


QUICK = Effort(
    games=3_000_000,
    crowds=2_500_000,
    reports=1_600_000,
    devices=7_000,
    orders=1_000_000,
    users=400,
)
FULL = Effort(
    games=40_000_000,
    crowds=40_000_000,
    reports=20_000_000,
    devices=100_000,
    orders=20_000_000,
    users=5_000,
)


@dataclass(frozen=True, kw_only=True)
class Audited:
    """A task and a number of users; cheap to send to another process."""

    task_bytes: bytes
    n_users: int
    """For whom the guarantees are stated."""
    effort: Effort = QUICK

    @cached_property
    def task(self) -> Task:
        """The task."""
        return Task.from_bytes(self.task_bytes)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Its mechanism."""
        return mechanism_of(self.task)

    @cached_property
    def terms(self) -> Terms:
        """What its guarantees follow from."""
        return Terms.of(self.task)

    @property
    def reduction(self) -> MatchCountReduction | None:
        """What one report gives away, whether or not a shuffler is relied on; see Mechanism."""
        return self.mechanism.reduction
