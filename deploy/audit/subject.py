"""The subject of an audit: a task, and how many users answer it."""

from dataclasses import dataclass
from functools import cached_property

from common.accounting.guarantees import PrivacyParameters
from common.mechanisms.base import Mechanism
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.registry import mechanism_of
from common.task.task import Task


@dataclass(frozen=True, kw_only=True)
class SampleSizes:
    """Sample sizes. Larger samples detect smaller faults and raise the ceilings."""

    games: int
    """Trials in each world of a game on one user's messages."""
    crowds: int
    """Messages in each world of a game on a whole batch."""
    reports: int
    """Reports on one value in a test of a randomizer."""
    devices: int
    """Reports that devices seal, one submission after the other."""
    orders: int
    """Reports that are permuted in tests of the order."""
    users: int
    """Users of a collection over the running services."""


QUICK = SampleSizes(
    games=1_000_000,
    crowds=800_000,
    reports=600_000,
    devices=4_000,
    orders=300_000,
    users=400,
)
LITTLE = SampleSizes(
    games=200_000,
    crowds=800_000,
    reports=400_000,
    devices=4_000,
    orders=200_000,
    users=300,
)
"""Enough for the weaknesses of the self-test."""
FULL = SampleSizes(
    games=40_000_000,
    crowds=40_000_000,
    reports=20_000_000,
    devices=100_000,
    orders=20_000_000,
    users=5_000,
)


@dataclass(frozen=True, kw_only=True)
class AuditSubject:
    """A task and a number of users; cheap to send to another process."""

    task_bytes: bytes
    n_users: int
    """Users for whom the guarantees are stated."""
    sizes: SampleSizes = QUICK

    @cached_property
    def task(self) -> Task:
        """The task."""
        return Task.from_bytes(self.task_bytes)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Its mechanism."""
        return mechanism_of(self.task)

    @cached_property
    def terms(self) -> PrivacyParameters:
        """The terms of its guarantees."""
        return PrivacyParameters.of(self.task)

    @property
    def reduction(self) -> MatchCountReduction | None:
        """The mechanism's reduction, whether or not a shuffler is relied on."""
        return self.mechanism.reduction
