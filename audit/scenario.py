"""One scenario of an audit, and its subject: a task, its users, and the code that is called."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast, get_args

from numpy.random import Generator

from shuffledp.analyzer.sentinels import check_sentinels
from shuffledp.audit.families.family import Family, Items
from shuffledp.audit.families.references import family_of
from shuffledp.audit.finding import Rows
from shuffledp.audit.harness.in_process_run import InProcessRun
from shuffledp.audit.harness.party_cores import permuting
from shuffledp.common.accounting import guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.mechanisms.base import Mechanism, Randomizer, Reports, Tally
from shuffledp.common.messages.guarantee import Coalition
from shuffledp.common.messages.submission import Value
from shuffledp.common.protocols import Kind
from shuffledp.common.runtime.parts.executor import Executor
from shuffledp.common.task.dummies import Drawn
from shuffledp.common.task.kinds import ITEM_KINDS
from shuffledp.common.task.shuffler_spec import ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.uniform_dummies import UniformDummies
from shuffledp.shuffler.collection import check_length
from shuffledp.shuffler.permutation import permute
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.device_store import DeviceStore

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


class Ports:
    """
    The deployed code that scenarios call, some of which the self-test replaces.

    Functions of the parties and of the accountant, and the parties in one process.
    """

    parties: Callable[..., InProcessRun] = InProcessRun

    # --- devices

    contributor: type[Contributor] = Contributor
    draw_token = staticmethod(PendingToken.draw)
    device_store: type[DeviceStore] = DeviceStore

    def start_generator(self, rng: Generator) -> Generator:
        """Return the generator of a device that has just started."""
        return rng

    def draw_reports(self, family: Family[Any], value: Value, n: int, rng: Generator) -> Reports:
        """Draw the reports of n users who all hold the same value."""
        return family.draw(value, n, rng)

    def randomize(self, mechanism: Mechanism, values: Items, rng: Generator) -> Reports:
        """Randomize users' items."""
        return mechanism.randomize(values, rng)

    def draw_numbers(self, task: Task, n_users: int, rng: Generator) -> Items:
        """Draw how many uniform dummies each user adds."""
        return cast("UniformDummies", task.dummies).draw_numbers(n_users, rng)

    def draw_dummies(self, task: Task, mechanism: Mechanism, n: int, rng: Generator) -> Drawn:
        """Draw how many dummies each of n users adds, and the dummies, user by user."""
        return task.dummies.draw(mechanism, n, rng)

    # --- the shuffler

    shuffling: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while an honest one of two shufflers runs."""
    permuting: Callable[[], AbstractContextManager[None]] = staticmethod(permuting)
    """Likewise, for one that only permutes."""
    check_length = staticmethod(check_length)
    permute = staticmethod(permute)
    draw_item_dummies = staticmethod(ShufflerSpec.draw_item_dummies)

    def shuffler_executor(self, executor: Executor) -> Executor:
        """Return what runs the parts of the shuffler's batches."""
        return executor

    async def before_delivery(self, party: Any, number: int) -> None:  # noqa: ANN401  # a shuffler
        """Leave the files of an honest one of two shufflers alone, before each delivery."""

    # --- the analyzer and its accountant

    check_sentinels = staticmethod(check_sentinels)
    local_guarantee = staticmethod(guarantees.local_guarantee)
    analyzer_guarantee = staticmethod(guarantees.analyzer_guarantee)
    skippers_guarantee = staticmethod(guarantees.skippers_guarantee)
    task_bytes = staticmethod(Task.to_bytes)

    def tally(self, mechanism: Randomizer, reports: Reports) -> Tally:
        """Count reports."""
        return mechanism.tally(reports)


@dataclass(frozen=True, kw_only=True)
class AuditSubject:
    """An audited task and its number of users."""

    task: Task
    n_users: int
    """Number of users for whom guarantees are stated."""
    sizes: SampleSizes = QUICK
    sample: Task | None = None
    """A task with two shufflers beside one with one, for the scenarios that need two."""
    ports: Ports = field(default_factory=Ports)
    """The code that scenarios call: the deployed code, or faulty code in a self-test."""

    @property
    def chain(self) -> Task:
        """The task with two shufflers: the sample, or the audited one."""
        return self.sample or self.task

    @property
    def chain_name(self) -> str:
        """Name of the sample, in findings about it; empty if the audited task has two shufflers."""
        return f"{self.sample.protocol}, two shufflers" if self.sample else ""

    @property
    def linking(self) -> Coalition:
        """The coalition that knows which reports are whose."""
        return "both-shufflers+analyzer" if self.task.relay else "shuffler+analyzer"

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
    """Faulty code, which the self-test injects in place of some of the deployed code."""

    def __init__(
        self,
        sentence: str,
        *,
        applies: Callable[[AuditSubject], bool] = lambda _: True,
        **faulty: Any,  # noqa: ANN401  # ports, by their names
    ) -> None:
        """`applies` returns whether the fault would show on a task, by default on each."""
        self.sentence, self.applies = sentence, applies
        vars(self).update(faulty)


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
    kinds: tuple[Kind, ...] = ITEM_KINDS
    shufflers: tuple[int, ...] = (1, 2)
    """Numbers of shufflers of the tasks that it is for."""

    def fits(self, subject: AuditSubject) -> bool:
        """Return whether the scenario is for tasks with as many shufflers."""
        return bool({len(subject.task.shufflers), len(subject.chain.shufflers)} & {*self.shufflers})
