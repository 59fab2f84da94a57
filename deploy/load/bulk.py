"""
Plays many users against running services, with the code that real devices run.

For the demo and for tests, which want a batch filled: it seals while it sends, and counts outcomes
alone. It measures nothing, for sealing would be most of what is measured; `shuffledp load` seals
ahead, into a file, and replays that.

Every simulated user goes through `Contributor.prepare`, in worker processes because sealing is
the work; the submissions travel in bulk.
"""

import asyncio
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Final

import grpc
import numpy as np
from numpy.typing import NDArray

from common.crypto.randomness import secure_generator
from common.crypto.signing import SignedTask
from common.errors import PeerBusyError
from common.messages.submission import Outcome
from common.messages.value import Value
from common.runtime.access import CallKind
from common.runtime.rpc import LONG_DEADLINE, reply
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.submissions import outcomes_from_wire
from deploy.load.arrivals import submissions_of_a_call
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from user_agent.contribution import Contributor

_CHUNK_USERS: Final = 500
"""Users prepared by one worker and submitted in one call, unless their envelopes are long."""

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 32.0
"""Seconds before a call for which there was no room is made again, doubled each time."""


async def contribute_all(
    values: Sequence[Value] | NDArray[np.int64],
    signed: SignedTask,
    shuffler: grpc.aio.Channel,
    *,
    progress: Callable[[int], None] = lambda _: None,
    processes: int = 0,
) -> Counter[Outcome]:
    """
    Let one user contribute each value.

    Args:
        values: One a user, of the task's kind; items may be an array.
        signed: The task.
        shuffler: A channel to the shuffler.
        progress: Told how many more users are through.
        processes: Worker processes; 0 means one for each core.

    Returns:
        How many submissions had each outcome.
    """
    people: list[Value] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    stub = shuffler_pb2_grpc.ShufflerStub(shuffler)
    workers = processes or os.cpu_count() or 1
    envelope_bytes = Task.from_bytes(signed.task_bytes).envelope_bytes
    together = min(_CHUNK_USERS, submissions_of_a_call(envelope_bytes))
    room = asyncio.Semaphore(2 * workers)
    calls = asyncio.Semaphore(CallKind.BULK.value.share)
    outcomes: Counter[Outcome] = Counter()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:

        async def submit(chunk: list[Value]) -> None:
            async with room:
                envelopes = await asyncio.wrap_future(
                    pool.submit(_prepare, signed.task_bytes, signed.digest(), chunk)
                )
                request = shuffler_pb2.SubmitBulkRequest(
                    task_digest=signed.digest(), envelopes=envelopes
                )
                async with calls:
                    found = await _submit(stub, request)
            outcomes.update(found)
            progress(len(chunk))

        async with asyncio.TaskGroup() as group:
            for start in range(0, len(people), together):
                group.create_task(submit(people[start : start + together]))
    return outcomes


async def _submit(
    stub: "shuffler_pb2_grpc.ShufflerAsyncStub", request: shuffler_pb2.SubmitBulkRequest
) -> list[Outcome]:
    """Submit in bulk; while the shuffler has no room, wait longer and longer and try again."""
    pause = _FIRST_PAUSE
    while True:
        try:
            response = await reply(stub.SubmitBulk(request, timeout=LONG_DEADLINE), "the shuffler")
        except PeerBusyError:
            if pause > _LONGEST_PAUSE:
                raise
            await asyncio.sleep(pause)
            pause *= 2
        else:
            return outcomes_from_wire(response)


@lru_cache(maxsize=1)
def _worker(task_bytes: bytes, digest: TaskDigest) -> tuple[Contributor, np.random.Generator]:
    """Lay a task out once a worker process, with a generator of the worker's own."""
    return Contributor(Task.from_bytes(task_bytes), digest), secure_generator()


def _prepare(task_bytes: bytes, digest: TaskDigest, values: list[Value]) -> list[bytes]:
    contributor, rng = _worker(task_bytes, digest)
    return [contributor.prepare(value, rng) for value in values]
