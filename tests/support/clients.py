"""Users, devices and operators of three running services, in this process or in child processes."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Final

import grpc
import numpy as np
import pytest

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.result import Result
from shuffledp.common.task.task import Task
from shuffledp.common.wire.batches import status_from_wire
from shuffledp.common.wire.tasks import signed_task_from_wire
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from shuffledp.user_agent.contribution import Contributor
from tests.support.command_line import run_command
from tests.support.services import Services
from tests.support.tasks import draft

_DAY: Final = 86_400
_PUBLISHED: Final = itertools.count()
"""Seconds between the deadlines of tasks, so that none repeats another."""
DEADLINE: Final = 20.0
"""Time limit of a call, in seconds."""


async def publish(cluster: Cluster, n_users: int, **changes: Any) -> SignedTask:
    """Publish a task that closes at n_users and not before, over child processes."""
    fields: dict[str, Any] = {"local_epsilon": 4.0, "n_min": n_users, "target_size": n_users}
    fields["deadline"] = int(time.time()) + _DAY + next(_PUBLISHED)
    async with cluster.operator() as operator:
        signed, _ = await operator.publish_task(draft(cluster.shuffler_key, **fields | changes))
        return signed


def envelopes(signed: SignedTask, count: int, *, seed: int = 1) -> list[bytes]:
    """Prepare submissions of users who all hold item 0."""
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(seed)
    return [contributor.prepare(0, rng).envelope for _ in range(count)]


async def fetch_task(services: Services, digest: bytes) -> SignedTask:
    """Fetch a task through the shuffler, as devices do."""
    request = shuffler_pb2.FetchTaskRequest(task_digest=digest)
    async with services.stubs() as (_, shuffler, _analyzer):
        answer = await shuffler.FetchTask(request, timeout=DEADLINE)
    return signed_task_from_wire(answer.task)


async def submit(
    services: Services, signed: SignedTask, *envelopes: bytes
) -> list[shuffler_pb2.SubmitResponse]:
    """Submit envelopes one after the other, over one connection."""
    async with services.stubs() as (_, shuffler, _analyzer):
        return [
            await shuffler.Submit(
                shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope),
                timeout=DEADLINE,
            )
            for envelope in envelopes
        ]


async def submit_bulk(
    services: Services, signed: SignedTask, envelopes: Sequence[bytes], tokens: Sequence[bytes] = ()
) -> shuffler_pb2.SubmitBulkResponse:
    """Submit envelopes in one call."""
    request = shuffler_pb2.SubmitBulkRequest(
        task_digest=signed.digest(), envelopes=envelopes, tokens=tokens
    )
    async with services.stubs() as (_, shuffler, _analyzer):
        return await shuffler.SubmitBulk(request, timeout=DEADLINE)


async def contribute(
    services: Services, signed: SignedTask, person: str = "", value: int = 0
) -> user_agent_pb2.ContributeResponse:
    """Answer a task through the user agent, by default as a person of this task only."""
    digest = signed.digest()
    request = user_agent_pb2.ContributeRequest(
        task_digest=digest, value=value, person=person or digest.hex()
    )
    async with services.stubs() as (agent, _, _analyzer):
        return await agent.Contribute(request, timeout=DEADLINE)


async def result_of(services: Services, signed: SignedTask) -> Result:
    """Wait for the result, as the analyzer's operator."""
    async with services.operator() as operator, asyncio.timeout(DEADLINE):
        return await operator.wait_for_result(signed.digest())


async def collect(services: Services, signed: SignedTask, users: int) -> Result:
    """Submit for `users` users in bulk, and wait for the result."""
    await submit_bulk(services, signed, envelopes(signed, users))
    return await result_of(services, signed)


async def refusal(call: Awaitable[object]) -> tuple[str, str]:
    """Return the status and the details of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


def credentials(services: Services, party: str = "analyzer") -> tuple[str, ...]:
    """Return the command-line options of a service's operator."""
    return (
        *("--address", f"{party}={getattr(services, party).address}"),
        *("--token-file", str(services.directory / party / "operator.token")),
        *("--authority", str(services.directory / "tls" / "authority.pem")),
    )


async def run_as_operator(services: Services, *arguments: str) -> tuple[int | None, str, str]:
    """Run a command as the analyzer's operator; return status, output and error output."""
    return await run_command(*arguments, *credentials(services))


async def command(services: Services, *arguments: str) -> str:
    """Run a command that succeeds as the analyzer's operator, and return its output."""
    status, printed, complaint = await run_as_operator(services, *arguments)
    assert 0 == status, complaint
    return printed


async def final_state(services: Services, signed: SignedTask) -> BatchState:
    """Wait until the shuffler has nothing more to do for a batch."""
    request = shuffler_pb2.GetBatchStatusRequest(task_digest=signed.digest())
    async with services.stubs() as (_, shuffler, _analyzer), asyncio.timeout(DEADLINE):
        while True:
            answer = await shuffler.GetBatchStatus(request, timeout=DEADLINE)
            state = status_from_wire(answer).state
            if state in {BatchState.ERASED, BatchState.QUARANTINED, BatchState.EXPIRED}:
                return state
            await asyncio.sleep(0.05)
