"""
A batch's way through the shuffler: collect, close, permute, deliver once, erase.

What is to be done with a batch stands in `batch.py`; this file does it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.envelope import EnvelopeContent, unpack
from common.errors import (
    BatchStateError,
    PeerError,
    PeerRefusalError,
    SubmissionConflictError,
    TaskError,
    UnknownTaskError,
    WireError,
)
from common.hpke import HpkePrivateKey, TaskDigest, envelope_context
from common.opening import OpeningPool
from common.runtime import logs
from common.runtime.clock import Clock
from common.runtime.state import StateDirectory
from common.signing import PublicIdentity, SignedTask
from common.submission import (
    BATCH_ID_BYTES,
    BatchId,
    BatchManifest,
    BatchState,
    BatchStatus,
    Outcome,
)
from common.task import Task
from shuffler.batch import FINAL_STATES, Event, Terms, after, due
from shuffler.batch_key import BatchKey
from shuffler.client import Analyzer
from shuffler.permutation import permute
from shuffler.spool import Row, Spool, StoredBatch

CHUNK_REPORTS: Final = 1000
"""Sealed reports stored, and delivered, together."""

_TICK: Final = 0.25
"""Seconds between looks at the clock, and between tries to deliver."""
_KEPT: Final = frozenset({BatchState.QUARANTINED})
"""States at whose end the batch and its key are kept, for an operator to look into."""
_PASSING: Final = frozenset({"INTERNAL", "UNKNOWN", "ABORTED", "RESOURCE_EXHAUSTED", "CANCELLED"})
"""Answers of the analyzer after which a delivery is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A task that this shuffler collects for."""

    digest: TaskDigest
    signed: SignedTask
    task: Task
    batch_id: BatchId
    key: BatchKey | None
    """None once the batch is over and its key destroyed."""
    terms: Terms


class Collection:
    """All batches of this shuffler."""

    def __init__(
        self,
        *,
        spool: Spool,
        state: StateDirectory,
        analyzer: Analyzer,
        identity: PublicIdentity,
        key: HpkePrivateKey,
        pool: OpeningPool,
        minimum_batch: int,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        self._spool = spool
        self._state = state
        self._analyzer = analyzer
        self._identity = identity
        self._key = key
        self._pool = pool
        self._minimum_batch = minimum_batch
        self._clock = clock
        self._rng = rng
        self._rounds: dict[TaskDigest, Round] = {}
        self._opening = asyncio.Lock()
        self._advancing = asyncio.Lock()

    # --- collecting -------------------------------------------------------------------------------

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give a task's published bytes, fetched from the analyzer once."""
        return (await self._round(digest)).signed

    async def submit(self, digest: TaskDigest, envelope: bytes) -> Outcome:
        """
        Take one submission; when this returns it is on the disk.

        Returns:
            STORED, or REPEATED if these very bytes were there.

        Raises:
            UnknownTaskError: The analyzer knows no such task.
            WireError: The envelope has not the task's length, or holds another number of reports.
            SealError: It does not open: another key, task or role, or a changed bit.
            SubmissionConflictError: The submission id was used with other bytes.
            BatchStateError: The batch no longer collects.
        """
        collecting = await self._round(digest)
        _check_length(envelope, collecting.task)
        content = unpack(self._key.open(envelope, envelope_context(digest)), collecting.task)
        [outcome] = await self._store(collecting, [content])
        if outcome is Outcome.CONFLICT:
            raise SubmissionConflictError("this submission id was used with other bytes")
        if outcome is Outcome.CLOSED:
            raise BatchStateError("the task's batch no longer collects")
        return outcome

    async def submit_bulk(self, digest: TaskDigest, envelopes: Sequence[bytes]) -> list[Outcome]:
        """
        Take many submissions, opened on all cores; when this returns they are on the disk.

        Returns:
            What became of each, in order.
        """
        collecting = await self._round(digest)
        size = collecting.task.envelope_bytes
        outcomes = [Outcome.MALFORMED] * len(envelopes)
        places = [place for place, envelope in enumerate(envelopes) if len(envelope) == size]
        if not places:
            return outcomes
        opened = await asyncio.wrap_future(
            self._pool.submit(
                b"".join(envelopes[place] for place in places), size, envelope_context(digest)
            )
        )
        each = len(opened.plaintexts) // len(places)
        readable = [number for number, fine in enumerate(opened.readable) if fine]
        contents = [
            unpack(opened.plaintexts[number * each : (number + 1) * each], collecting.task)
            for number in readable
        ]
        stored = await self._store(collecting, contents)
        for number, outcome in zip(readable, stored, strict=True):
            outcomes[places[number]] = outcome
        return outcomes

    async def status(self, digest: TaskDigest) -> BatchStatus:
        """Tell how far a task's batch is."""
        collecting = await self._round(digest)
        stored = await self._stored(collecting)
        return BatchStatus(
            state=stored.state,
            n_users=stored.n_users,
            n_min=collecting.terms.n_min,
            shuffle_seconds=stored.shuffle_seconds,
        )

    async def _store(self, collecting: Round, contents: Sequence[EnvelopeContent]) -> list[Outcome]:
        key = collecting.key
        if key is None:
            return [Outcome.CLOSED] * len(contents)
        return await self._spool.append(
            [
                Row(
                    batch_id=collecting.batch_id,
                    tag=key.tag(content.submission_id),
                    content_tag=key.tag(content.sealed_reports),
                    sealed=key.seal(content.sealed_reports),
                )
                for content in contents
            ]
        )

    # --- rounds -----------------------------------------------------------------------------------

    async def _round(self, digest: TaskDigest) -> Round:
        """Find the round of a task; on its first use fetch and check the task, and begin one."""
        if digest not in self._rounds:
            async with self._opening:
                if digest not in self._rounds:
                    stored = await self._spool.find(digest) or await self._begin(digest)
                    self._rounds[digest] = self._resume(stored)
        return self._rounds[digest]

    async def _begin(self, digest: TaskDigest) -> StoredBatch:
        signed = await self._get_task(digest)
        if signed.digest() != digest:
            raise UnknownTaskError("the analyzer gave another task than the one asked for")
        self._identity.verify(signed)
        task = Task.from_bytes(signed.task_bytes)
        if task.shuffler_key != self._key.public_key().raw:
            raise TaskError("the task is sealed to another shuffler's key")
        batch_id = BatchId(self._rng.bytes(BATCH_ID_BYTES))
        self._state.secret(_key_file(batch_id), BatchKey.generate)
        return await self._spool.open_batch(batch_id, signed)

    async def _get_task(self, digest: TaskDigest) -> SignedTask:
        try:
            return await self._analyzer.get_task(digest)
        except PeerRefusalError as error:
            if error.status == UnknownTaskError.status:
                raise UnknownTaskError("there is no task with this digest") from error
            raise

    def _resume(self, stored: StoredBatch) -> Round:
        task = Task.from_bytes(stored.signed.task_bytes)
        over = stored.state in FINAL_STATES
        return Round(
            digest=stored.signed.digest(),
            signed=stored.signed,
            task=task,
            batch_id=stored.batch_id,
            key=None if over else self._batch_key(stored.batch_id),
            terms=Terms(
                n_min=max(task.n_min, self._minimum_batch),
                target_size=task.target_size,
                deadline=task.deadline,
            ),
        )

    def _batch_key(self, batch_id: BatchId) -> BatchKey:
        def missing() -> bytes:
            raise BatchStateError("the key of a batch that is not over is missing")

        return BatchKey(self._state.secret(_key_file(batch_id), missing))

    async def _stored(self, collecting: Round) -> StoredBatch:
        stored = await self._spool.find(collecting.digest)
        if stored is None:
            raise BatchStateError("the batch is not in the spool any more")
        return stored

    # --- moving on --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Move batches on for as long as the service runs."""
        while True:
            await self.advance()
            await asyncio.sleep(_TICK)

    async def resume(self) -> None:
        """Take up the batches of an earlier run, and finish erasing those that are over."""
        for stored in await self._spool.all():
            if stored.state in FINAL_STATES - _KEPT:
                self._state.destroy(_key_file(stored.batch_id))
            self._rounds[stored.signed.digest()] = self._resume(stored)

    async def advance(self) -> None:
        """Do whatever is due with every batch that is not over."""
        async with self._advancing:
            for collecting in list(self._rounds.values()):
                if collecting.key is None:
                    continue
                try:
                    await self._advance(collecting)
                except PeerError as error:
                    logs.event(
                        "delivery put off",
                        {"batch_id": collecting.batch_id.hex(), "status": error.status},
                        level="WARNING",
                    )
                except Exception as error:  # noqa: BLE001  # one batch must not hold up the others
                    logs.event(
                        "batch cannot move on",
                        {"batch_id": collecting.batch_id.hex(), "error": type(error).__name__},
                        level="ERROR",
                    )

    async def _advance(self, collecting: Round) -> None:
        stored = await self._stored(collecting)
        while True:
            event = due(stored.state, stored.n_users, collecting.terms, self._clock.now())
            if event is None:
                return
            await self._perform(event, stored, collecting)
            stored = await self._stored(collecting)
            logs.event(
                "batch moved on",
                {
                    "batch_id": stored.batch_id.hex(),
                    "state": stored.state.value,
                    "n_users": stored.n_users,
                },
            )
            if stored.state in FINAL_STATES:
                self._rounds[collecting.digest] = self._resume(stored)

    async def _perform(self, event: Event, stored: StoredBatch, collecting: Round) -> None:
        if event is Event.PERMUTE:
            await self._permute(collecting)
            return
        if event is Event.DELIVER:
            event = await self._deliver(stored, collecting)
        state = after(stored.state, event)
        if event in {Event.EXPIRE, Event.ERASE}:
            await self._spool.drop(collecting.batch_id, state)
            self._state.destroy(_key_file(collecting.batch_id))
        else:
            await self._spool.set_state(collecting.batch_id, state)

    async def _permute(self, collecting: Round) -> None:
        """Permute once and save the order; a crash before the save draws a new order."""
        key = _held(collecting)
        started = time.perf_counter()
        rows = await self._spool.submissions(collecting.batch_id)

        def permuted() -> list[bytes]:
            size = collecting.task.sealed_report_bytes
            joined = np.frombuffer(b"".join(key.open(row) for row in rows), dtype=np.uint8)
            reports = permute(joined.reshape(-1, size), self._rng)
            return [
                key.seal(reports[start : start + CHUNK_REPORTS].tobytes())
                for start in range(0, len(reports), CHUNK_REPORTS)
            ]

        chunks = await asyncio.to_thread(permuted)
        await self._spool.replace_by_permuted(
            collecting.batch_id, chunks, time.perf_counter() - started
        )

    async def _deliver(self, stored: StoredBatch, collecting: Round) -> Event:
        """Deliver the saved order; whether the analyzer took it, or never will."""
        key = _held(collecting)
        manifest = BatchManifest(
            task_digest=collecting.digest,
            batch_id=collecting.batch_id,
            n_users=stored.n_users,
            n_reports=stored.n_users * collecting.task.reports_per_user,
        )

        async def chunks() -> AsyncIterator[bytes]:
            position = 0
            while (
                chunk := await self._spool.permuted_chunk(manifest.batch_id, position)
            ) is not None:
                yield key.open(chunk)
                position += 1

        try:
            await self._analyzer.deliver(manifest, chunks())
        except PeerRefusalError as error:
            if error.status in _PASSING:
                raise PeerError("the analyzer could not take the batch just now") from error
            logs.event(
                "batch refused by the analyzer",
                {"batch_id": collecting.batch_id.hex(), "status": error.status},
                level="ERROR",
            )
            return Event.REFUSE
        return Event.DELIVER


def _check_length(envelope: bytes, task: Task) -> None:
    if len(envelope) != task.envelope_bytes:
        raise WireError(
            f"the envelope has {len(envelope)} bytes; a submission of this task has "
            f"{task.envelope_bytes}"
        )


def _key_file(batch_id: BatchId) -> str:
    return f"batch-{batch_id.hex()}.key"


def _held(collecting: Round) -> BatchKey:
    if collecting.key is None:
        raise BatchStateError("the batch is over")
    return collecting.key
