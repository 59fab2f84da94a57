"""The operator's client of the analyzer: publish tasks, read results and the ledger."""

import asyncio
from collections.abc import Sequence
from typing import Final

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import BatchStateError, PeerRefusalError, ProofError, WireError
from shuffledp.common.messages import ledger_entry
from shuffledp.common.messages.batch import TaskSummary
from shuffledp.common.messages.result import Result
from shuffledp.common.runtime.rpc import LONG_DEADLINE
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import results, tasks
from shuffledp.common.wire.batches import sentinel_parts
from shuffledp.common.wire.fields import MAX_RESULT_BYTES
from shuffledp.deploy.clients.base import ServiceClient
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc

_AFTER_ALL: Final = b"\xff" * 32
"""After every digest in a list of tasks."""


class OperatorClient(ServiceClient):
    """Client of an analyzer, authenticated by its operator token."""

    _PARTY = "analyzer"
    _STUB = analyzer_pb2_grpc.AnalyzerStub
    _CERTIFIED = True
    _RECEIVE_LIMIT = MAX_RESULT_BYTES

    async def publish_task(self, draft: TaskDraft) -> tuple[SignedTask, dict[str, str]]:
        """
        Publish a task; return also, by witness, why it has not cosigned, empty if it has.

        Can take minutes, because the analyzer composes all earlier releases.
        """
        answer = await self._call(self._stub.CreateTask, tasks.draft_to_wire(draft), LONG_DEADLINE)
        return tasks.signed_task_from_wire(answer.task), dict(answer.witnesses)

    async def register_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """Register sentinels by the hashes of their reports, in several calls; safe to retry."""
        for part in sentinel_parts(sentinels):
            request = analyzer_pb2.RegisterSentinelsRequest(
                task_digest=digest, sentinels=part, acknowledged=acknowledged
            )
            await self._call(self._stub.RegisterSentinels, request)

    async def result(self, digest: TaskDigest) -> Result:
        """Return a result; raise BatchStateError before its release, WireError for a wrong task."""
        request = analyzer_pb2.GetResultRequest(task_digest=digest)
        try:
            answer = await self._call(self._stub.GetResult, request, LONG_DEADLINE)
        except PeerRefusalError as error:
            if error.status == BatchStateError.status:
                raise BatchStateError(str(error)) from error
            raise
        result = results.result_from_wire(answer)
        if result.task_digest != digest:
            raise WireError("the analyzer returned the result of a different task")
        return result

    async def tasks(self) -> list[TaskSummary]:
        """Return the summaries of all tasks, by deadline."""
        summaries: list[TaskSummary] = []
        while True:
            after = summaries[-1].task_digest if summaries else b""
            request = analyzer_pb2.ListTasksRequest(after=after)
            answer = await self._call(self._stub.ListTasks, request, LONG_DEADLINE)
            if not (page := tasks.summaries_from_wire(answer)):
                return sorted(summaries, key=lambda task: (task.deadline, task.task_digest))
            if page[0].task_digest <= after:
                raise WireError("the analyzer listed the same tasks twice")
            summaries += page

    async def now(self) -> int:
        """Return the analyzer's time; raise WireError if its version does not tell it."""
        request = analyzer_pb2.ListTasksRequest(after=_AFTER_ALL)
        return tasks.time_from_wire(await self._call(self._stub.ListTasks, request))

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """Return a signed task, unverified, and its state; raise ProofError for a wrong task."""
        request = analyzer_pb2.DescribeTaskRequest(task_digest=digest)
        answer = await self._call(self._stub.DescribeTask, request)
        signed, summary = tasks.description_from_wire(answer)
        if signed.digest() != digest:
            raise ProofError("the analyzer returned a different task")
        return signed, summary

    async def decide(
        self, digest: TaskDigest, decision: ledger_entry.Decision, note: str
    ) -> ledger_entry.DecisionEntry:
        """Release or drop a batch without a result; return the entry, unverified; safe to retry."""
        request = results.decision_to_wire(digest, decision, note)
        entry = results.decided_from_wire(await self._call(self._stub.DecideBatch, request))
        if (entry.task_digest, entry.decision) != (digest, decision):
            raise WireError("the analyzer returned a different decision")
        return entry

    async def ledger(self) -> tuple[list[ledger_entry.ChainedEntry], ledger_entry.ChainHead]:
        """Return all entries and the head of the hash chain; raise LedgerError if it is broken."""
        entries: list[ledger_entry.ChainedEntry] = []
        head = ledger_entry.ChainHead()
        while True:
            request = analyzer_pb2.GetLedgerRequest(after=head.entry)
            answer = await self._call(self._stub.GetLedger, request, LONG_DEADLINE)
            if not (page := results.ledger_from_wire(answer)):
                return entries, head
            head = ledger_entry.verify(page, head)
            entries += page

    async def wait_for_result(self, digest: TaskDigest, *, pause: float = 0.2) -> Result:
        """Poll every `pause` seconds until the result is released; limit with asyncio.timeout."""
        while True:
            try:
                return await self.result(digest)
            except BatchStateError:
                await asyncio.sleep(pause)
