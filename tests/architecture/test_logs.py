import json
import typing
from pathlib import Path

import numpy as np
import pytest

from common.errors import PeerError
from common.runtime.logs import Field
from common.runtime.rpc import open_channel, reply
from deploy.cluster import Cluster
from protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc
from tests.support.children import publish

_VALUE = 8_675_309
_PERSON = "Clementine Planted"


async def test_no_log_record_at_debug_holds_a_planted_value(tmp_path: Path) -> None:
    """
    A task is run with everything logged; neither the value nor the person nor a peer appears.

    Every field of every record is one of the allow-list.
    """
    async with Cluster(tmp_path, log_level="DEBUG") as cluster:
        signed = await publish(cluster, 2, domain_size=10_000_000, buckets=251)
        async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
            stub = user_agent_pb2_grpc.UserAgentStub(channel)
            request = user_agent_pb2.ContributeRequest(
                task_digest=signed.digest(), value=_VALUE, person=_PERSON
            )
            await reply(stub.Contribute(request, timeout=30))
        await cluster.shuffler.kill()
        async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
            stub = user_agent_pb2_grpc.UserAgentStub(channel)
            request.person = _PERSON + " II"
            with pytest.raises(PeerError) as caught:
                await reply(stub.Contribute(request, timeout=5))
            assert str(_VALUE) not in str(caught.value)
        logs = [child.log for child in (cluster.user_agent, cluster.shuffler, cluster.analyzer)]
    records = [
        json.loads(line)
        for log in logs
        for line in log.read_text(encoding="utf-8").splitlines()
        if line.startswith("{")
    ]
    everything = "".join(log.read_text(encoding="utf-8") for log in logs)

    assert len(records) >= 3
    assert str(_VALUE) not in everything
    assert "Planted" not in everything
    allowed = {*typing.get_args(Field), "level", "event"}
    for record in records:
        assert set(record) <= allowed
    assert np.all([record["level"] in {"DEBUG", "INFO", "WARNING", "ERROR"} for record in records])
