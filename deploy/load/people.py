"""
Simulated people's submissions, prepared many at a time by the rules that devices follow.

A device prepares one submission, with `user_agent.contribution`. Here the reports, dummies and
orders of a whole group are drawn together, so that sealing is nearly all the cost.
"""

import asyncio
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final, cast

import grpc
import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from common.crypto.randomness import secure_generator
from common.crypto.signing import SignedTask
from common.errors import PeerBusyError
from common.mechanisms.base import Mechanism, Reports, null_reports
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.registry import randomizer_of
from common.messages.submission import Outcome, Submission, pack
from common.messages.value import Value
from common.runtime.access import CallKind
from common.runtime.rpc import LONG_DEADLINE, reply
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from common.wire.fields import MAX_MESSAGE_BYTES
from common.wire.submissions import MAX_BULK_ENVELOPES, outcomes_from_wire
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from user_agent.contribution import draw_dummies, draw_dummy_counts
from user_agent.encoding import encoder_for

GROUP: Final = 500
"""People prepared together by one worker process."""
_LONGEST_PAUSE: Final = 32.0
"""Seconds before a call for which there was no room is retried; doubled from a quarter."""


class GroupContributor:
    """Prepares the submissions of many simulated users at once, distributed as devices'."""

    def __init__(self, task: Task, digest: TaskDigest) -> None:
        """
        Lay out a task.

        Raises:
            TaskError: The task's mechanism is unknown.
        """
        self._task = task
        self._mechanism = randomizer_of(task)
        self._lay_out = encoder_for(task, None)
        analyzer_key = HpkePublicKey(task.suite, task.analyzer_key)
        shuffler_key = HpkePublicKey(task.suite, task.shuffler_key)
        self._seal_report = analyzer_key.sealer(report_context(digest))
        self._seal_envelope = shuffler_key.sealer(envelope_context(digest))

    def prepare(
        self, values: Sequence[Value], rng: np.random.Generator, ids: Sequence[bytes] = ()
    ) -> list[bytes]:
        """
        Prepare one envelope for each value.

        Args:
            values: n values of the task's kind.
            rng: Source of reports, dummies, orders and submission ids.
            ids: n submission ids; empty to draw them.

        Returns:
            n envelopes of the task's one length.

        Raises:
            ValueRangeError: A value does not fit the task.

        Cost: at most 1.1 times that of the seals: one for each report and envelope.
        """
        if not values:
            return []
        sealed = [self._seal_report(report.tobytes()) for report in self.reports(values, rng).flat]
        each = self._task.reports_per_user
        envelopes = []
        for user, submission_id in enumerate(ids or draw_ids(len(values), rng)):
            own = b"".join(sealed[user * each : (user + 1) * each])
            submission = Submission(submission_id=submission_id, sealed_reports=own)
            envelopes.append(self._seal_envelope(pack(submission)))
        return envelopes

    def reports(self, values: Sequence[Value], rng: np.random.Generator) -> Reports:
        """Draw all reports of n > 0 users in the order of sending, shape (n, reports_per_user)."""
        n_users, each = len(values), self._task.reports_per_user
        own = self._mechanism.randomize(_joined([self._lay_out(v, rng) for v in values]), rng)
        table = null_reports(n_users * each, own.dtype).reshape(n_users, each).copy()
        table[:, 0] = own
        if each > 1:
            counts, dummies = self._dummies(n_users, rng)
            table[:, 1:][np.arange(each - 1) < counts[:, None]] = dummies
        order = rng.permuted(np.tile(np.arange(each), (n_users, 1)), axis=1)
        found: Reports = np.take_along_axis(table, order, axis=1)
        return found

    def _dummies(self, n_users: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Reports]:
        """Draw the numbers of dummies of n users, and all dummies in the order of users."""
        spec, mechanism = self._task.dummies, cast("Mechanism", self._mechanism)
        if spec.uniform:
            counts = draw_dummy_counts(spec, n_users, rng)
            return counts, mechanism.dummies(int(counts.sum()), rng)
        drawn = [draw_dummies(mechanism, spec, rng) for _ in range(n_users)]
        return np.array([len(one) for one in drawn], dtype=np.int64), np.concatenate(drawn)


def draw_ids(count: int, rng: np.random.Generator) -> list[bytes]:
    """Draw submission ids."""
    drawn = rng.bytes(count * SUBMISSION_ID_BYTES)
    return [
        drawn[at : at + SUBMISSION_ID_BYTES] for at in range(0, len(drawn), SUBMISSION_ID_BYTES)
    ]


def _joined(laid_out: list[Any]) -> Any:  # noqa: ANN401  # as each kind's mechanism takes values
    """Join single users' values, laid out, to those of a group."""
    if not isinstance(laid_out[0], Pairs):
        return np.concatenate(laid_out)
    owned = np.cumsum([0, *(len(pairs.keys) for pairs in laid_out)])
    return Pairs(
        offsets=owned.astype(np.int64),
        keys=np.concatenate([pairs.keys for pairs in laid_out]),
        values=np.concatenate([pairs.values for pairs in laid_out]),
    )


def workers(processes: int = 0) -> Executor:
    """Start worker processes that seal: 0 for one a core, 1 for none but this one."""
    if processes == 1:
        return ThreadPoolExecutor(1)
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes or os.cpu_count() or 1, mp_context=context)


@lru_cache(maxsize=1)
def worker(signed: SignedTask) -> tuple[GroupContributor, Task, np.random.Generator]:
    """Lay a task out once a worker process, with a generator of the worker's own."""
    task = Task.from_bytes(signed.task_bytes)
    return GroupContributor(task, signed.digest()), task, secure_generator()


def _prepare_group(signed: SignedTask, values: list[Value]) -> list[bytes]:
    contributor, _, rng = worker(signed)
    return contributor.prepare(values, rng)


def submissions_of_a_call(envelope_bytes: int) -> int:
    """Return how many submissions travel in one bulk call: half of what the shuffler reads."""
    return max(1, min(MAX_BULK_ENVELOPES // 2, MAX_MESSAGE_BYTES // (2 * envelope_bytes)))


async def contribute_all(
    values: Sequence[Value],
    signed: SignedTask,
    shuffler: grpc.aio.Channel,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Counter[Outcome]:
    """
    Let one user contribute each value, for the demo and for tests: sealed while they are sent.

    Args:
        values: One a user, of the task's kind.
        signed: The task.
        shuffler: A channel to the shuffler.
        progress: Told how many more users are through.

    Returns:
        The number of submissions of each outcome.
    """
    stub = shuffler_pb2_grpc.ShufflerStub(shuffler)
    size = Task.from_bytes(signed.task_bytes).envelope_bytes
    together = min(GROUP, submissions_of_a_call(size))
    ahead = asyncio.Semaphore(2 * (os.cpu_count() or 1))
    calls = asyncio.Semaphore(CallKind.BULK.value.share)
    outcomes: Counter[Outcome] = Counter()
    with workers() as pool:

        async def submit(group: list[Value]) -> None:
            async with ahead:
                envelopes = await asyncio.wrap_future(pool.submit(_prepare_group, signed, group))
                request = shuffler_pb2.SubmitBulkRequest(
                    task_digest=signed.digest(), envelopes=envelopes
                )
                async with calls:
                    outcomes.update(await _submit(stub, request))
            progress(len(group))

        async with asyncio.TaskGroup() as tasks:
            for start in range(0, len(values), together):
                tasks.create_task(submit(list(values[start : start + together])))
    return outcomes


async def _submit(
    stub: "shuffler_pb2_grpc.ShufflerAsyncStub", request: shuffler_pb2.SubmitBulkRequest
) -> list[Outcome]:
    """Submit in bulk; while the shuffler has no room, retry after longer and longer pauses."""
    pause = 0.25
    while True:
        try:
            response = await reply(stub.SubmitBulk(request, timeout=LONG_DEADLINE), "the shuffler")
            return outcomes_from_wire(response)
        except PeerBusyError:
            if pause > _LONGEST_PAUSE:
                raise
            await asyncio.sleep(pause)
            pause *= 2
