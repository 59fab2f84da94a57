"""The three services as processes of their own: stopped, killed, and started again."""

import asyncio

import numpy as np
import pytest

from common.crypto.signing import PublicIdentity, SignedTask
from common.errors import PeerError
from common.runtime.rpc import open_channel, reply
from common.task.task import Task
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc
from tests.support.children import publish
from tests.support.policies import generous
from user_agent.budget import Budget
from user_agent.contribution import Contributor
from user_agent.policy import Claim

_DEADLINE = 60.0


async def test_sigterm_ends_each_process_gracefully(cluster: Cluster) -> None:
    """Exit status 0, and the last log line says so."""
    for child in (cluster.user_agent, cluster.shuffler, cluster.analyzer):
        assert 0 == await child.stop()
        assert '"stopped"' in child.log.read_text(encoding="utf-8").splitlines()[-1]


async def _save_without_sending(cluster: Cluster, signed: SignedTask, person: str) -> None:
    """Stop the agent, and leave in its file what a crash before sending would."""
    await cluster.user_agent.stop()
    budget = Budget(cluster.user_agent.state / "budget.sqlite")
    task = Task.from_bytes(signed.task_bytes)
    contributor = Contributor(task, signed.digest())
    identity = (cluster.analyzer.state / "identity.pub").read_text(encoding="ascii")
    await budget.spend(
        person,
        signed.digest(),
        Claim.of(task),
        generous(PublicIdentity.from_hex(identity, "analyzer_identity")),
        lambda: contributor.answer(2, np.random.default_rng(1)),
    )
    budget.close()


async def test_a_killed_user_agent_sends_the_same_bytes_again(cluster: Cluster) -> None:
    """Saved while the shuffler was away; the next process sends it without being asked again."""
    signed = await publish(cluster, 2)
    address = cluster.shuffler.address

    async def contribute(person: str) -> None:
        request = user_agent_pb2.ContributeRequest(
            task_digest=signed.digest(), value=1, person=person
        )
        async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
            stub = user_agent_pb2_grpc.UserAgentStub(channel)
            await reply(stub.Contribute(request, timeout=20), "it")

    await contribute("first")
    await cluster.shuffler.kill()
    with pytest.raises(PeerError):
        await contribute("third, who cannot fetch the task")
    await cluster.start_shuffler(address)
    await _save_without_sending(cluster, signed, "second")
    await cluster.start_user_agent()
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 2 == result.n_users
    assert 0 == sum(result.refused.values())
