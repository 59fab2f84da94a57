import asyncio
import json
import typing
from pathlib import Path
from typing import Final

import grpc
import pytest

from common.crypto.signing import SignedTask
from common.runtime.logs import Field
from common.runtime.rpc import open_channel
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc
from tests.support.children import publish

_VALUE = 1_048_573
_PERSON = "Clementine Planted"
_LARGE: Final = {
    "protocol": "hp-sdp",
    "domain_size": 1_048_576,
    "buckets": 127,
    "dummies_per_user": 0,
}
"""A large domain, so that the planted value is a number that nothing else shows."""


async def test_no_log_record_at_debug_holds_a_planted_value(tmp_path: Path) -> None:
    """
    A task is run to its release, then once more into a failure, with everything logged: neither
    value nor person appears in a record or in an error, and every field is on the allow-list.
    """
    async with Cluster(tmp_path, log_level="DEBUG") as cluster:
        signed = await publish(cluster, 2, **_LARGE)
        async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
            stub = user_agent_pb2_grpc.UserAgentStub(channel)
            for number in range(2):
                await stub.Contribute(_request(signed, f"{_PERSON} {number}"), timeout=30)
            async with cluster.operator() as operator, asyncio.timeout(120):
                await operator.wait_for_result(signed.digest())
            other = await publish(cluster, 2, **_LARGE)
            await cluster.shuffler.kill()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Contribute(_request(other, f"{_PERSON} again"), timeout=10)
        logs = [child.log for child in (cluster.user_agent, cluster.shuffler, cluster.analyzer)]
    everything = "".join(log.read_text(encoding="utf-8") for log in logs)
    records = [json.loads(line) for line in everything.splitlines() if line.startswith("{")]

    assert {"batch moved on", "batch staged", "batch released"} <= {r["event"] for r in records}
    for text in (everything, caught.value.details() or ""):
        assert str(_VALUE) not in text
        assert "Planted" not in text
    allowed = {*typing.get_args(Field), "level", "event"}
    for record in records:
        assert set(record) <= allowed


def _request(signed: SignedTask, person: str) -> user_agent_pb2.ContributeRequest:
    return user_agent_pb2.ContributeRequest(
        task_digest=signed.digest(), value=_VALUE, person=person
    )
