"""One scenario of an audit, and its subject: a task and its number of users."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, get_args

from numpy.random import Generator

from audit.families.references import family_of
from audit.finding import Rows
from audit.ports import Ports
from common.accounting.guarantees import PrivacyParameters
from common.protocols import ITEM_KINDS, Kind
from common.task.task import Task

EVERY_KIND: Final[tuple[Kind, ...]] = get_args(Kind)


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
    ports: Ports = field(default_factory=Ports)
    """The code that scenarios call: the deployed code, or faulty code in a self-test."""

    @property
    def of_items(self) -> bool:
        """Whether the task collects items, whose result is a histogram."""
        return self.task.kind in ITEM_KINDS

    @cached_property
    def family(self) -> Any:  # noqa: ANN401  # a family for items or for other values
        """The reference for the task's mechanism."""
        return family_of(self.task)

    @property
    def mechanism(self) -> Any:  # noqa: ANN401  # as different as their values
        """The task's mechanism."""
        return self.family.mechanism

    @cached_property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters of the task."""
        return PrivacyParameters.of(self.task)


class Weakness(Ports):
    """Faulty code, which the self-test injects; the docstring is its description, a sentence."""

    @property
    def sentence(self) -> str:
        """The description."""
        return " ".join((self.__doc__ or "").split())

    def applies(self, subject: AuditSubject) -> bool:
        """Return whether the fault would show on a task, by default on each with findings."""
        del subject
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario, which can run on its own in any process."""

    name: str
    """Identifier for `--scenario` and in findings: lower-case letters, hyphens and `+`."""
    title: str
    check: Callable[[AuditSubject, Generator], Rows]
    """A seed reproduces the figures, except those of services and of the production generator."""
    weakness: Weakness
    """Fault that `--self-test` injects, and `check` must detect."""
    kinds: tuple[Kind, ...] = ("categorical", "ordered")
