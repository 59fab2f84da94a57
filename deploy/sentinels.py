"""
An operator's sentinels: ordinary submissions whose reports the analyzer looks out for.

They go the way of every submission: prepared by the code that devices run, sent one by one, each
over a connection of its own. What stays different is the address that they come from, which is for
the operator to vary.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import numpy as np

from common.errors import BatchStateError, PeerError, PeerRefusalError, SignatureError
from common.evidence_wire import receipt_from_wire
from common.receipt import envelope_hash
from common.runtime.rpc import SHORT_DEADLINE, reply
from common.runtime.state import write_whole
from common.task import Task
from common.task_digest import TaskDigest
from common.wire import signed_task_from_wire
from deploy.operator_client import OperatorClient
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from user_agent.contribution import Answer, Contributor

_OWNER_ONLY: Final = 0o600


@dataclass(slots=True)
class Planted:
    """One sentinel, and what became of it."""

    answer: Answer
    receipt: bytes = b""
    state: str = "planned"
    """planned, acknowledged, or refused."""


class Planting:
    """Plants sentinels among the users of one task."""

    def __init__(
        self,
        *,
        digest: TaskDigest,
        operator: OperatorClient,
        connect: Callable[[], AbstractAsyncContextManager[grpc.aio.Channel]],
        kept: Path,
        rng: np.random.Generator,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """
        Take what is needed.

        Args:
            digest: The task.
            operator: The analyzer, for whoever holds its token.
            connect: Opens a connection to the shuffler, a new one each time.
            kept: The operator's file. Whoever reads it can tell sentinels from users.
            rng: Draws values, reports and pauses.
            wait: Waits for so many seconds.
        """
        self._digest = digest
        self._operator = operator
        self._connect = connect
        self._kept = kept
        self._rng = rng
        self._wait = wait
        self.planted: list[Planted] = []

    async def plant(self, count: int, over: float) -> None:
        """
        Register so many sentinels, send them, and confirm those that the shuffler acknowledged.

        They are registered before any is sent, so that none can be counted as a user's, and
        confirmed afterwards, so that none is missed that never arrived.

        Args:
            count: How many.
            over: Seconds over which they are spread, at times drawn at random; 0 sends them one
                after the other.

        Raises:
            PeerRefusalError: There is no such task, no room for so many below its target size, or
                its batch has arrived already; nothing was sent then.
        """
        contributor, domain_size = await self._lay_out()
        values = self._rng.integers(0, domain_size, count)
        self.planted = [Planted(contributor.answer(value, self._rng)) for value in values.tolist()]
        self._keep()
        leaves = [b"".join(sentinel.answer.leaves) for sentinel in self.planted]
        await self._operator.register_sentinels(self._digest, leaves, acknowledged=False)
        times = np.sort(self._rng.random(count)) * over
        for sentinel, pause in zip(self.planted, np.diff(times, prepend=0.0), strict=True):
            await self._wait(float(pause))
            await self._send(sentinel)
            self._keep()

    async def _lay_out(self) -> tuple[Contributor, int]:
        """Fetch the task through the shuffler, as devices do."""
        request = shuffler_pb2.FetchTaskRequest(task_digest=self._digest)
        async with self._connect() as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            answer = await reply(stub.FetchTask(request, timeout=SHORT_DEADLINE))
        signed = signed_task_from_wire(answer.task)
        if signed.digest() != self._digest:
            raise SignatureError("the shuffler gave another task than the one that was asked for")
        task = Task.from_bytes(signed.task_bytes)
        return Contributor(task, self._digest), task.domain_size

    async def _send(self, sentinel: Planted) -> None:
        request = shuffler_pb2.SubmitRequest(
            task_digest=self._digest, envelope=sentinel.answer.envelope
        )
        try:
            async with self._connect() as channel:
                stub = shuffler_pb2_grpc.ShufflerStub(channel)
                answer = await reply(stub.Submit(request, timeout=SHORT_DEADLINE))
        except PeerRefusalError:
            sentinel.state = "refused"
            return
        except PeerError:
            return  # It may be stored or not: it stays planned, and is taken out if it is there.
        sentinel.receipt = receipt_from_wire(answer)
        try:
            await self._operator.register_sentinels(
                self._digest, [b"".join(sentinel.answer.leaves)], acknowledged=True
            )
        except PeerRefusalError as error:
            if error.status != BatchStateError.status:
                raise
            return  # The batch was faster.
        sentinel.state = "acknowledged"

    def _keep(self) -> None:
        fields = {
            "task_digest": self._digest.hex(),
            "sentinels": [
                {
                    "state": sentinel.state,
                    "leaves": [leaf.hex() for leaf in sentinel.answer.leaves],
                    "envelope_hash": envelope_hash(sentinel.answer.envelope).hex(),
                    "receipt": sentinel.receipt.hex(),
                }
                for sentinel in self.planted
            ],
        }
        write_whole(self._kept, json.dumps(fields, indent=1).encode(), _OWNER_ONLY)
