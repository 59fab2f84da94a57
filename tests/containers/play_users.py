"""
Runs in the load generator's container: users submit, with the same bytes until they are answered.

Usage: python3 - SHUFFLER AUTHORITY DIGEST USERS SEED
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from common.errors import PeerError
from common.randomness import secure_generator
from common.runtime.rpc import SHORT_DEADLINE, open_channel, reply
from common.submission import Outcome
from common.task import Task
from common.task_digest import TaskDigest
from common.wire import outcomes_from_wire, signed_task_from_wire
from deploy.datasets.catalogue import IPUMS_1940_CITY, load
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from user_agent.contribution import Contributor

_TOGETHER = 20
_PATIENCE = 240.0
_PAUSE = 0.25
_ACKNOWLEDGED = {Outcome.STORED, Outcome.REPEATED}


async def play(address: str, authority: bytes, digest: TaskDigest, users: int, seed: int) -> None:
    """Submit, and print what came of it."""
    values = load(IPUMS_1940_CITY).draw(users, np.random.default_rng(seed))
    acknowledged: Counter[bool] = Counter()
    async with open_channel(address, "shuffler", authority) as channel, asyncio.timeout(_PATIENCE):
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        wanted = shuffler_pb2.FetchTaskRequest(task_digest=digest)
        fetched = await reply(stub.FetchTask(wanted, timeout=SHORT_DEADLINE), "the shuffler")
        signed = signed_task_from_wire(fetched.task)
        task = Task.from_bytes(signed.task_bytes)
        contributor = Contributor(task, digest)
        rng = secure_generator()
        for start in range(0, users, _TOGETHER):
            envelopes = [
                contributor.prepare(int(value), rng) for value in values[start : start + _TOGETHER]
            ]
            request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes)
            outcomes = await _submit(stub, request)
            acknowledged.update(outcome in _ACKNOWLEDGED for outcome in outcomes)
    counts = np.bincount(values, minlength=task.domain_size).tolist()
    sys.stdout.write(json.dumps({"acknowledged": acknowledged[True], "counts": counts}) + "\n")


async def _submit(
    stub: "shuffler_pb2_grpc.ShufflerAsyncStub", request: shuffler_pb2.SubmitBulkRequest
) -> list[Outcome]:
    while True:
        try:
            answer = await reply(stub.SubmitBulk(request, timeout=SHORT_DEADLINE), "the shuffler")
            return outcomes_from_wire(answer)
        except PeerError:
            await asyncio.sleep(_PAUSE)


if __name__ == "__main__":
    where, trusted, named, how_many, chosen = sys.argv[1:]
    asyncio.run(
        play(
            where,
            Path(trusted).read_bytes(),
            TaskDigest(bytes.fromhex(named)),
            int(how_many),
            int(chosen),
        )
    )
