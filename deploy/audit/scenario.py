"""One scenario of an audit, and its subject: a task, and how many users answer it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, get_args

import numpy as np

from common.accounting.guarantees import PrivacyParameters
from common.mechanisms.base import Mechanism
from common.mechanisms.registry import mechanism_of
from common.protocols import Kind
from common.task.task import Task
from deploy.audit.finding import Findings, Rows

ITEMS: Final[tuple[Kind, ...]] = ("categorical",)
EVERY_KIND: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True)
class SampleSizes:
    """Sample sizes. Larger samples detect smaller faults and raise the ceilings."""

    games: int
    """Trials in each world of a game on one user's messages."""
    batches: int
    """Messages in each world of a game on a whole batch."""
    reports: int
    """Reports on one value in a test of a randomizer."""
    devices: int
    """Reports that devices seal, one submission after the other."""
    orders: int
    """Reports that are permuted in tests of the order."""
    users: int
    """Users of a collection over the running services."""


QUICK: Final = SampleSizes(1_000_000, 800_000, 600_000, 4_000, 300_000, 400)
SMALL: Final = SampleSizes(200_000, 800_000, 400_000, 4_000, 200_000, 300)
"""Enough for the weaknesses of the self-test."""
FULL: Final = SampleSizes(40_000_000, 40_000_000, 20_000_000, 100_000, 20_000_000, 5_000)


@dataclass(frozen=True, kw_only=True)
class AuditSubject:
    """An audited task and its number of users; cheap to pickle."""

    task_bytes: bytes
    n_users: int
    """Users for whom the guarantees are stated."""
    sizes: SampleSizes = QUICK

    @cached_property
    def task(self) -> Task:
        """The task, parsed."""
        return Task.from_bytes(self.task_bytes)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Its mechanism."""
        return mechanism_of(self.task)

    @cached_property
    def terms(self) -> PrivacyParameters:
        """The terms of its guarantees."""
        return PrivacyParameters.of(self.task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario. Each runs in any process, on its own."""

    name: str
    """Lower-case letters, hyphens and `+`; `--scenario` takes it, and its rows carry it."""
    title: str
    check: Callable[..., Findings | Rows]
    """
    Takes the subject, a generator, and the options of the weakness. It draws from the generator
    only (services and key generation use the system's randomness), so that one seed gives the same
    figures again.
    """
    weakness: str
    """What `--self-test` breaks, in one sentence."""
    broken: Mapping[str, Any] = field(default_factory=dict)
    """Options of `check` that break it: a finding must fail. No findings where the task has
    nothing to break."""
    kinds: tuple[Kind, ...] = ITEMS
    """Kinds of value for which it runs."""

    def run(
        self, subject: AuditSubject, rng: np.random.Generator, *, broken: bool = False
    ) -> Findings:
        """Run the scenario, with its weakness or without, and name its findings."""
        found = self.check(subject, rng, **(self.broken if broken else {}))
        outcome = found if isinstance(found, Findings) else Findings(found)
        rows = (
            replace(row, scenario=self.name, title=row.title or self.title)
            for row in outcome.findings
        )
        return Findings(tuple(rows), outcome.curves)
