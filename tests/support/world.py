"""
The whole system in one event loop, and its invariants.

The counted reports are compared with the sent ones: the world holds the keys and opens every
submission that a device has saved. Sealed reports are distinct, so that a repeated or missing one
is detected.
"""

import sqlite3
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from shuffledp.common.crypto.hpke import envelope_context, report_context, split_every
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import BatchStateError, ShuffleDpError, UnknownTaskError
from shuffledp.common.mechanisms.base import is_null
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.batch import BatchManifest, BatchState
from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.device_store import InclusionState, SavedSubmission, SubmissionState
from tests.support.analyzer_party import AnalyzerParty, Surroundings
from tests.support.faults import Crash, Life
from tests.support.keys import signed_key
from tests.support.ledger_entries import releases
from tests.support.parties import DeviceParty, ShufflerParty
from tests.support.tasks import draft

_ROUND_SECONDS: Final = 1000
_TRIES: Final = 20
PERSONS: Final = 8


@dataclass
class World:
    """Three parties, their files under one folder, and all published tasks."""

    path: Path
    signed: list[SignedTask] = field(default_factory=list)
    _ledger: list[LedgerEntry] = field(default_factory=list)

    async def start(self) -> None:
        """Start the parties."""
        self.path.mkdir(exist_ok=True)
        self.around = Surroundings(self.path)
        self._stranger = Life("stranger", self.around.faults)
        self.analyzer = AnalyzerParty(self.around)
        self.shuffler = ShufflerParty(self.around, self.analyzer)
        self.device = DeviceParty(self.around, self.shuffler, self.analyzer)
        self.parties = (self.analyzer, self.shuffler, self.device)
        for party in self.parties:
            await party.start()

    async def end(self) -> None:
        """Stop the parties."""
        for party in self.parties:
            await party.end()

    async def restart(self, party: AnalyzerParty | ShufflerParty | DeviceParty) -> None:
        """Stop a party, as a crash between two boundaries would, and restart it."""
        await party.end()
        for _ in range(_TRIES):
            try:
                await party.start()
            except Crash:  # while it started
                continue
            return
        raise AssertionError("it does not start")

    async def restart_crashed(self) -> None:
        """Restart every crashed party."""
        for party in self.parties:
            if party.life.over.is_set():
                await self.restart(party)

    # --- operations -------------------------------------------------------------------------------

    async def publish(self, n_min: int, target_size: int) -> SignedTask:
        """Publish a task whose submissions hold three reports each."""
        wanted = draft(
            signed_key(self.shuffler.keys.public_key()),
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
        """Let a person answer; each has a different value."""
        with suppress(ShuffleDpError, Crash):  # unsent answers are saved
            await self.device.agent.contribute(signed.digest(), 7 * person, f"person {person}")

    async def submit_as_stranger(self, digest: TaskDigest, envelope: bytes) -> None:
        """Submit without a device."""
        shuffler = self.shuffler
        await self.around.network.call(
            *(self._stranger, shuffler.life, "submit"),
            lambda: shuffler.collection.submit(digest, envelope),
        )

    async def deliver_as_stranger(self, manifest: BatchManifest, sealed: list[bytes]) -> None:
        """Deliver a batch without being the shuffler."""
        analyzer = self.analyzer
        await self.around.network.call(
            *(self._stranger, analyzer.life, "deliver batch"),
            lambda: analyzer.deliver_parts(manifest, sealed),
        )

    async def resend(self) -> None:
        """Let devices resend pending answers."""
        with suppress(Crash):
            await self.device.agent.resend_pending()

    async def rotate(self) -> None:
        """Let the shuffler and analyzer rotate their keys."""
        for party in (self.shuffler, self.analyzer):
            with suppress(Crash):
                await party.rotate()

    async def ask(self) -> None:
        """Let devices check that their answers were counted."""
        self.around.clock.seconds += 2
        with suppress(Crash):
            await self.device.agent.monitor.check_due()

    async def advance(self) -> None:
        """Let the shuffler advance its batches, and the analyzer finish its releases."""
        await self.shuffler.advance()
        await self.analyzer.settle()

    async def finish(self) -> None:
        """Stop all faults, and advance the clock until every batch is over."""
        self.around.faults.suspended = True
        self.around.network.losses.clear()
        for seconds in (0, 0, 2 * _ROUND_SECONDS, 0, 0):
            self.around.clock.seconds += seconds
            await self.restart_crashed()
            for act in (self.rotate, self.resend, self.advance, self.ask, self.check):
                await act()

    # --- invariants -------------------------------------------------------------------------------

    async def check(self) -> None:
        """
        Check the invariants that hold at any time.

        The ledger never decreases, and holds one release for each task and batch, of at least n_min
        users. Every batch has one order, and no report is delivered in two places.
        """
        await self.restart_crashed()
        with self._without_faults():
            entries = releases(await self.analyzer.store.ledger(0))
        assert self._ledger == entries[: len(self._ledger)], "the ledger has decreased"
        self._ledger = entries
        assert len({entry.task_digest for entry in entries}) == len(entries), "released twice"
        assert len({entry.batch_id for entry in entries}) == len(entries), "released twice"
        for entry in entries:
            assert entry.n_users >= self._task(entry.task_digest).n_min, "released below n_min"
        manifests = self.shuffler.delivered.keys()
        assert len({manifest.batch_id for manifest in manifests}) == len(manifests), "two manifests"
        delivered = Counter(report for manifest in manifests for report in self.sent(manifest))
        assert set(delivered.values()) <= {1}, "a report is delivered in two places"
        self._delivered = delivered.keys()

    async def check_end(self) -> None:
        """Finish, and check the outcome of each submission."""
        await self.finish()
        for signed in self.signed:
            await self._check_end_of(signed.digest())

    async def _check_end_of(self, digest: TaskDigest) -> None:
        task, saved = self._task(digest), await self.saved(digest)
        arrived = [each for each in saved if each.state is SubmissionState.ARRIVED]
        try:
            await self.analyzer.releases.result(digest)
        except BatchStateError:
            assert len(arrived) < task.n_min, "acknowledged submissions are lost"
            assert await self.batch_state(digest) in {None, BatchState.EXPIRED}
            return
        assert await self.batch_state(digest) is BatchState.ERASED
        [entry] = [entry for entry in self._ledger if entry.task_digest == digest]
        sent = {each.person: self._sealed_reports(each, task) for each in saved}
        for reports in sent.values():
            there = {report in self._delivered for report in reports}
            assert len(there) == 1, "half a submission was delivered"
        counted = {who: them for who, them in sent.items() if them[0] in self._delivered}
        assert {each.person for each in arrived} <= counted.keys(), "lost"
        assert entry.n_users == len(counted), "counted twice, or counted without a user"
        cells = np.frombuffer(await self.analyzer.store.run(_cells, digest), np.int64)
        by_hand = self._cells_of([one for them in counted.values() for one in them], digest)
        assert cells.tolist() == by_hand.tolist(), "another histogram"
        for each in arrived:
            checked = await self.device.store.find(each.person, digest)
            assert checked is not None
            assert checked.inclusion is InclusionState.COUNTED, "its device has no proof"
            assert checked.receipt

    def sent(self, manifest: BatchManifest) -> list[bytes]:
        """Return the reports of a batch that the shuffler has sent so far, in order."""
        parts = self.shuffler.delivered[manifest]
        sealed = b"".join(parts[number] for number in sorted(parts))
        return split_every(sealed, self._task(manifest.task_digest).sealed_report_bytes)

    @contextmanager
    def _without_faults(self) -> Generator[None]:
        """Read the parties' files without a fault."""
        faults = self.around.faults
        before, faults.suspended = faults.suspended, True
        try:
            yield
        finally:
            faults.suspended = before

    async def saved(self, digest: TaskDigest) -> list[SavedSubmission]:
        """Return every person's saved submission for a task."""
        people = [f"person {number}" for number in range(PERSONS)]
        with self._without_faults():
            contributions = [await self.device.store.find(person, digest) for person in people]
        return [each for each in contributions if each is not None]

    async def batch_state(self, digest: TaskDigest) -> BatchState | None:
        """Return the state of a task's batch; None if nobody has fetched the task."""
        try:
            with self._without_faults():
                return (await self.shuffler.collection.status(digest)).state
        except UnknownTaskError:
            return None

    def _task(self, digest: TaskDigest) -> Task:
        [wanted] = [signed for signed in self.signed if signed.digest() == digest]
        return Task.from_bytes(wanted.task_bytes)

    def _sealed_reports(self, saved: SavedSubmission, task: Task) -> list[bytes]:
        key = self.shuffler.keys.private_key(task.suite, task.shuffler_key, whose="shuffler_key")
        envelope = self.device.sent.get(saved.envelope_hash, saved.envelope or b"")
        plaintext = key.open(envelope, envelope_context(saved.task_digest))
        return split_every(split_submission(plaintext)[1], task.sealed_report_bytes)

    def _cells_of(self, sealed: list[bytes], digest: TaskDigest) -> np.ndarray:
        """Open and tally these reports."""
        task = self._task(digest)
        keys, mechanism = self.analyzer.keys.reports, mechanism_of(task)
        key = keys.private_key(task.suite, task.analyzer_key, whose="analyzer_key")
        plain = b"".join(key.open(report, report_context(digest)) for report in sealed)
        reports = np.frombuffer(plain, dtype=mechanism.report_dtype)
        return mechanism.tally(reports[~is_null(reports)])


def _cells(connection: sqlite3.Connection, digest: TaskDigest) -> bytes:
    asked = "SELECT cells FROM results WHERE task_digest = ?"
    return bytes(connection.execute(asked, (digest,)).fetchone()[0])
