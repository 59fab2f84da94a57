"""
The system as a whole, in one event loop, and what must be true of it whatever happens.

What is counted is compared with what was sent: the world holds the keys, opens every submission
that a device has saved, and knows each sealed report by its bytes. No two are alike, so that one
that is delivered twice, or is missing, shows.
"""

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from common.crypto.hpke import envelope_context, report_context
from common.crypto.signing import SignedTask
from common.errors import (
    BatchStateError,
    ShuffleDpError,
    UnknownTaskError,
)
from common.mechanisms.base import is_null
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchManifest, BatchState
from common.messages.ledger_entry import LedgerEntry
from common.messages.submission import unpack
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.harness.analyzer_core import chunks_of
from tests.support.faults import Crash, Life
from tests.support.parties import (
    AnalyzerParty,
    DeviceParty,
    ShufflerParty,
    Surroundings,
)
from tests.support.tasks import draft
from user_agent.budget import InclusionState, SavedSubmission, SubmissionState

_ROUND_SECONDS: Final = 1000
_TRIES: Final = 20
PERSONS: Final = 8


@dataclass
class World:
    """Three parties, their files under one folder, and everything that was ever published."""

    path: Path
    signed: list[SignedTask] = field(default_factory=list)
    _ledger: list[LedgerEntry] = field(default_factory=list)

    async def start(self) -> None:
        """Start the three."""
        self.path.mkdir(exist_ok=True)
        self.around = Surroundings(self.path)
        self.stranger = Life("stranger", self.around.faults)
        self.analyzer = AnalyzerParty(self.around)
        self.shuffler = ShufflerParty(self.around, self.analyzer)
        self.device = DeviceParty(self.around, self.shuffler, self.analyzer)
        for party in self.parties:
            await party.start()

    @property
    def parties(self) -> tuple[AnalyzerParty, ShufflerParty, DeviceParty]:
        """The three."""
        return (self.analyzer, self.shuffler, self.device)

    async def end(self) -> None:
        """Stop the three."""
        for party in self.parties:
            await party.end()

    async def restart(self, number: int) -> None:
        """Stop a party, as a crash between two boundaries would, and start it again."""
        party = self.parties[number]
        await party.end()
        await self._start(party)

    async def raise_the_dead(self) -> None:
        """Start every party that has crashed."""
        for party in self.parties:
            if party.life.over.is_set():
                await party.end()
                await self._start(party)

    async def _start(self, party: AnalyzerParty | ShufflerParty | DeviceParty) -> None:
        for _ in range(_TRIES):
            try:
                await party.start()
            except Crash:  # while it started
                continue
            return
        raise AssertionError("it does not start")

    # --- what people and operators do -------------------------------------------------------------

    async def publish(self, n_min: int, target_size: int) -> SignedTask:
        """Publish a task whose submissions hold three reports each."""
        wanted = draft(
            self.shuffler.keys.public_key().raw,
            protocol="mixdump",
            domain_size=4096,
            buckets=0,
            local_epsilon=16.0,
            dummies_per_user=2,
            n_min=n_min,
            target_size=target_size,
            deadline=int(self.around.clock.now()) + _ROUND_SECONDS,
        )
        signed = await self.analyzer.registry.publish(wanted)
        self.signed.append(signed)
        return signed

    async def contribute(self, person: int, signed: SignedTask) -> None:
        """Let a person answer; every value is held by one person alone."""
        with suppress(ShuffleDpError, Crash):  # what is owed is saved
            await self.device.agent.contribute(signed.digest(), 7 * person, f"person {person}")

    async def submit_as_stranger(self, digest: TaskDigest, envelope: bytes) -> None:
        """Let somebody without a device submit."""
        await self.around.network.call(
            self.stranger,
            self.shuffler.life,
            "submit",
            lambda: self.shuffler.collection.submit(digest, envelope),
        )

    async def deliver_as_stranger(self, manifest: BatchManifest, chunks: list[bytes]) -> None:
        """Let somebody who is no shuffler deliver a batch."""
        await self.around.network.call(
            self.stranger,
            self.analyzer.life,
            "deliver batch",
            lambda: self.analyzer.releases.deliver(manifest, chunks_of(chunks)),
        )

    async def resend(self) -> None:
        """Let devices send again what may not have arrived."""
        with suppress(Crash):
            await self.device.agent.resend_pending()

    async def rotate(self) -> None:
        """Let shuffler and analyzer replace the keys whose time has come."""
        for party in (self.shuffler, self.analyzer):
            with suppress(Crash):
                await party.rotate()

    async def ask(self) -> None:
        """Let devices ask whether their answers were counted."""
        self.around.clock.seconds += 2
        with suppress(Crash):
            await self.device.watch.check_due()

    async def advance(self) -> None:
        """Let the shuffler do what is due, and the analyzer what follows from it."""
        await self.shuffler.advance()
        await self.analyzer.settle()

    async def calm_down(self) -> None:
        """Let everything end: no more faults, and time passes until every batch is over."""
        self.around.faults.suspended = True
        self.around.network.losses.clear()
        for seconds in (0, 0, 2 * _ROUND_SECONDS, 0, 0):
            self.around.clock.seconds += seconds
            await self.raise_the_dead()
            await self.rotate()
            await self.resend()
            await self.advance()
            await self.ask()
            await self.check()

    # --- what must be true ------------------------------------------------------------------------

    async def check(self) -> None:
        """Check what must be true at any time."""
        await self.raise_the_dead()
        with self.looking():
            await self._check_ledger()
        self._check_deliveries()

    async def _check_ledger(self) -> None:
        """It never decreases, and holds one release for a task and for a batch, of enough users."""
        entries = await self.analyzer.store.ledger(0)
        assert self._ledger == entries[: len(self._ledger)], "the ledger has decreased"
        self._ledger = entries
        assert len({entry.task_digest for entry in entries}) == len(entries), "released twice"
        assert len({entry.batch_id for entry in entries}) == len(entries), "released twice"
        for entry in entries:
            task = Task.from_bytes((await self.analyzer.registry.get(entry.task_digest)).task_bytes)
            assert entry.n_users >= task.n_min, "a batch below n_min was released"

    def _check_deliveries(self) -> None:
        """One order for each batch, and no report in two of them."""
        whole: dict[bytes, bytes] = {}
        for manifest, chunks in self.shuffler.delivered:
            sealed = b"".join(chunks)
            longest = whole.setdefault(manifest.batch_id, sealed)
            assert longest.startswith(sealed) or sealed.startswith(longest), "permuted twice"
            whole[manifest.batch_id] = max(longest, sealed, key=len)
        everything = Counter(
            report
            for batch_id, sealed in whole.items()
            for report in self._reports(batch_id, sealed)
        )
        assert set(everything.values()) <= {1}, "a report is delivered in two places"

    def _reports(self, batch_id: bytes, sealed: bytes) -> Iterator[bytes]:
        [digest] = {
            manifest.task_digest
            for manifest, _ in self.shuffler.delivered
            if manifest.batch_id == batch_id
        }
        size = self._task(digest).sealed_report_bytes
        return (sealed[start : start + size] for start in range(0, len(sealed), size))

    async def check_end(self) -> None:
        """Check, once everything is over, what became of each submission."""
        await self.calm_down()
        with self.looking():
            for signed in self.signed:
                await self._check_end_of(signed)

    @contextmanager
    def looking(self) -> Generator[None]:
        """Look into the parties' files without a fault."""
        faults = self.around.faults
        before, faults.suspended = faults.suspended, True
        try:
            yield
        finally:
            faults.suspended = before

    async def _check_end_of(self, signed: SignedTask) -> None:
        digest = signed.digest()
        task = Task.from_bytes(signed.task_bytes)
        saved = await self.saved(digest)
        arrived = [each for each in saved if each.state is SubmissionState.ARRIVED]
        cells = await self._released_cells(digest)
        if cells is None:
            assert len(arrived) < task.n_min, "what was acknowledged is lost"
            assert await self.batch_state(digest) in {None, BatchState.EXPIRED}
            return
        assert await self.batch_state(digest) is BatchState.ERASED
        [entry] = [entry for entry in self._ledger if entry.task_digest == digest]
        counted = [each for each in saved if self._was_delivered(each)]
        assert {each.person for each in arrived} <= {each.person for each in counted}, "lost"
        assert entry.n_users == len(counted), "counted twice, or nobody's"
        assert cells.tolist() == self._cells_of(counted, task).tolist(), "another histogram"
        for each in arrived:
            evidence = await self.device.budget.evidence(each.person, digest)
            assert evidence is not None
            assert evidence.inclusion is InclusionState.COUNTED, "its device has no proof"
            assert evidence.receipt_verified

    async def saved(self, digest: TaskDigest) -> list[SavedSubmission]:
        """Look up what every person's device has saved for a task."""
        people = [f"person {number}" for number in range(PERSONS)]
        with self.looking():
            found = [await self.device.budget.find(person, digest) for person in people]
        return [each for each in found if each is not None]

    async def _released_cells(self, digest: TaskDigest) -> np.ndarray | None:
        try:
            await self.analyzer.releases.result(digest)
        except BatchStateError:
            return None
        return np.frombuffer(
            await self.analyzer.store._database.run(_cells, digest), dtype=np.int64
        )

    async def batch_state(self, digest: TaskDigest) -> BatchState | None:
        """Look up where a task's batch is; None if nobody has asked for the task."""
        try:
            with self.looking():
                return (await self.shuffler.collection.status(digest)).state
        except UnknownTaskError:
            return None

    def _task(self, digest: TaskDigest) -> Task:
        [found] = [signed for signed in self.signed if signed.digest() == digest]
        return Task.from_bytes(found.task_bytes)

    def _sealed_reports(self, saved: SavedSubmission) -> list[bytes]:
        task = self._task(saved.task_digest)
        key = self.shuffler.keys.private_key(task.suite, task.shuffler_key, whose="shuffler_key")
        plaintext = key.open(saved.envelope, envelope_context(saved.task_digest))
        joined, size = unpack(plaintext, task).sealed_reports, task.sealed_report_bytes
        return [joined[start : start + size] for start in range(0, len(joined), size)]

    def _was_delivered(self, saved: SavedSubmission) -> bool:
        """Return whether a submission's reports were delivered: all of them, or none."""
        delivered = {
            report
            for manifest, chunks in self.shuffler.delivered
            if manifest.task_digest == saved.task_digest
            for report in self._reports(manifest.batch_id, b"".join(chunks))
        }
        there = {report in delivered for report in self._sealed_reports(saved)}
        assert len(there) == 1, "half a submission was delivered"
        return there == {True}

    def _cells_of(self, counted: list[SavedSubmission], task: Task) -> np.ndarray:
        """Count by hand what the devices of these persons sent."""
        mechanism = mechanism_of(task)
        key = self.analyzer.keys.reports.private_key(
            task.suite, task.analyzer_key, whose="analyzer_key"
        )
        plain = [
            key.open(report, report_context(each.task_digest))
            for each in counted
            for report in self._sealed_reports(each)
        ]
        reports = np.frombuffer(b"".join(plain), dtype=mechanism.report_dtype)
        return mechanism.tally(reports[~is_null(reports)])


def _cells(connection: sqlite3.Connection, digest: TaskDigest) -> bytes:
    [cells] = connection.execute(
        "SELECT cells FROM results WHERE task_digest = ?", (digest,)
    ).fetchone()
    return bytes(cells)
