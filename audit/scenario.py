"""One scenario of an audit, and its subject: a task and its number of users."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, get_args

from numpy.random import Generator

from audit.finding import Rows
from common.accounting.guarantees import PrivacyParameters
from common.errors import ShuffleDpError
from common.mechanisms.base import Mechanism
from common.mechanisms.registry import mechanism_of
from common.protocols import Kind
from common.task.task import Task

EVERY_KIND: Final[tuple[Kind, ...]] = get_args(Kind)


class NotCoveredError(ShuffleDpError):
    """The audit has no reference distribution or attack for a task's mechanism."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(f"The audit has no reference for the mechanism {mechanism}")


@dataclass(frozen=True)
class SampleSizes:
    """Larger samples detect smaller faults and raise the ceilings."""

    games: int
    """Trials under each value in a game on one user's messages."""
    batches: int
    """Messages under each value in a game on a whole batch."""
    reports: int
    """Reports on one value in a test of a randomizer."""
    devices: int
    """Reports that devices seal, one submission at a time."""
    orders: int
    """Reports that are permuted in tests of the order."""
    users: int
    """Users in a collection by the running services."""


QUICK: Final = SampleSizes(1_000_000, 800_000, 600_000, 4_000, 300_000, 400)
SMALL: Final = SampleSizes(200_000, 800_000, 400_000, 4_000, 200_000, 300)
"""Sample sizes that suffice to detect the weaknesses of the self-test."""
FULL: Final = SampleSizes(40_000_000, 40_000_000, 20_000_000, 100_000, 20_000_000, 5_000)


@dataclass(frozen=True, kw_only=True)
class AuditSubject:
    """An audited task and its number of users."""

    task: Task
    n_users: int
    """Number of users for whom guarantees are stated."""
    sizes: SampleSizes = QUICK
    weakened: bool = False
    """Whether scenarios inject their weakness."""

    @cached_property
    def mechanism(self) -> Mechanism:
        """The task's mechanism."""
        return mechanism_of(self.task)

    @cached_property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters of the task."""
        return PrivacyParameters.of(self.task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario, which can run on its own in any process."""

    name: str
    """Identifier for `--scenario` and in findings: lower-case letters, hyphens and `+`."""
    title: str
    check: Callable[[AuditSubject, Generator], Rows]
    """A seed reproduces the figures, except those of services and of the production generator."""
    weakness: str
    """
    Weakness that `--self-test` injects, in one sentence.

    `check` then fails, or has no findings if it does not apply.
    """
    kinds: tuple[Kind, ...] = ("categorical",)
