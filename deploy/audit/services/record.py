"""One play of the services, kept whole: what was sent, received, stored, logged and released."""

from dataclasses import dataclass
from functools import cached_property

from common.crypto.hpke import HpkePrivateKey
from common.crypto.signing import SignedTask
from common.mechanisms.base import Mechanism
from common.mechanisms.registry import mechanism_of
from common.messages.ledger_entry import LedgerEntry
from common.messages.result import Result
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.services.disk import BatchDisk
from deploy.audit.services.facts import Fact
from deploy.audit.services.look import Look
from deploy.audit.services.sources import Asked, Source
from deploy.audit.services.tape import Heard, Party
from deploy.audit.services.traced import TracedAnswer
from deploy.audit.services.visits import Seen
from deploy.audit.services.watch import Watched


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Collection:
    """One task of the play, and what became of its batch."""

    name: str
    signed: SignedTask
    analyzer_key: bytes
    shuffler_key: bytes
    """Private keys, of services that are gone: with them the audit sees what each party sees."""
    answers: tuple[TracedAnswer, ...]
    """That devices made, in that order, whatever became of them."""
    heard: tuple[Heard, ...]
    """Messages of this task at the shuffler and at the analyzer."""
    disk: BatchDisk | None
    """The shuffler's, when the last submission had been stored."""
    mixed: BatchDisk | None
    """The shuffler's, when the delivery began."""
    staged: tuple[bytes, ...]
    """The analyzer's, when the delivery had been staged."""
    left_staged: tuple[bytes, ...]
    """The analyzer's, at the end."""
    closed_at: float | None
    """When the operator asked the shuffler to close; None where nobody did."""
    state: str
    """Of the batch, at the end."""
    result: Result | None
    cells: bytes

    @cached_property
    def task(self) -> Task:
        """The task."""
        return Task.from_bytes(self.signed.task_bytes)

    @cached_property
    def digest(self) -> TaskDigest:
        """Its digest."""
        return self.signed.digest()

    @cached_property
    def mechanism(self) -> Mechanism:
        """Its mechanism."""
        return mechanism_of(self.task)

    @cached_property
    def opens_reports(self) -> HpkePrivateKey:
        """The analyzer's key."""
        return HpkePrivateKey(self.task.suite, self.analyzer_key)

    @cached_property
    def opens_envelopes(self) -> HpkePrivateKey:
        """The shuffler's key."""
        return HpkePrivateKey(self.task.suite, self.shuffler_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What services may call things by, before everybody: all that has such a name in a play."""

    tasks: frozenset[str]
    """Digests, of tasks for which nothing was collected too; in hexadecimal, as all but the
    last."""
    batches: frozenset[str]
    keys: frozenset[str]
    addresses: dict[Party, str]
    """Where each service listens."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Record:
    """Everything that one play left."""

    first: Collection
    """All users answer; the operator closes it."""
    again: Collection
    """The same users answer in the same order; it closes by itself."""
    early: Collection
    """Half of the users, and some dishonest ones; closed below its target."""
    few: Collection
    """Fewer than n_min; its deadline passes."""
    marked: Collection
    """A few users whose values can be searched for."""
    persons: tuple[str, ...]
    """Who answer through the user agent: the first of the users."""
    population: str
    tokens: tuple[bytes, ...]
    """That came with submissions."""
    ledger: tuple[LedgerEntry, ...]
    sources: tuple[Source, ...]
    asked: tuple[Asked, ...]
    """Of the generators that stood in place of these."""
    heard: tuple[Heard, ...]
    log_lines: tuple[tuple[str, str], ...]
    """Party and line."""
    output: bytes
    """All that was written to standard output and standard error."""
    metrics: dict[str, str]
    """Pages by moment and party."""
    looks: tuple[Look, ...]
    """At the files of all parties, moment by moment."""
    columns: dict[Party, dict[str, tuple[str, ...]]]
    """Of each party's databases at the end, by table."""
    watched: Watched
    """What was noted while the services ran."""
    groups_left: int
    """Groups of submissions in the shuffler's file at the end."""
    seen: Seen
    """From outside, while a batch collected and when all was over."""
    facts: dict[Fact, bool]
    """What was tried on the way, and whether it came out as it must."""
    names: Names

    @property
    def disks(self) -> dict[str, dict[str, bytes]]:
        """The shuffler's files by moment."""
        return {one.moment: one.files for one in self.looks if one.party == "shuffler"}

    @property
    def collections(self) -> tuple[Collection, ...]:
        """Every task of the play."""
        return (self.first, self.again, self.early, self.few, self.marked)
