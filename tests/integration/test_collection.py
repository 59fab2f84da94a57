import asyncio
import math
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import analyzer.server
from analyzer.settings import AnalyzerSettings
from common.crypto.signing import SignedTask
from common.messages.batch import BatchState
from common.task.task import Task
from common.wire.batches import status_from_wire
from deploy.clients.analyzer import OperatorClient
from protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support.services import Services
from tests.support.tasks import draft
from user_agent.contribution import Contributor

_DEADLINE = 20.0


def _envelopes(signed: SignedTask, count: int) -> list[bytes]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(1)
    return [contributor.prepare(0, rng) for _ in range(count)]


async def test_a_histogram_comes_out_of_three_servers(services: Services) -> None:
    """Some users through the user agent, the others in bulk; one batch, one result."""
    signed = await services.publish(n_min=200, target_size=200, local_epsilon=4.0)
    digest = signed.digest()
    async with services.stubs() as (agent, shuffler, _):
        for person in range(5):
            request = user_agent_pb2.ContributeRequest(
                task_digest=digest, value=0, person=f"person {person}"
            )
            answer = await agent.Contribute(request, timeout=_DEADLINE)
            assert not answer.repeated
        envelopes = _envelopes(signed, 195)
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes)
        outcomes = await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        assert {shuffler_pb2.SUBMISSION_OUTCOME_STORED} == set(outcomes.outcomes)
        async with services.operator() as operator, asyncio.timeout(_DEADLINE):
            result = await operator.wait_for_result(digest)
        async with asyncio.timeout(_DEADLINE):
            status_request = shuffler_pb2.GetBatchStatusRequest(task_digest=digest)
            while True:
                reply = await shuffler.GetBatchStatus(status_request, timeout=_DEADLINE)
                if status_from_wire(reply).state is BatchState.ERASED:
                    break
                await asyncio.sleep(0.05)

    assert (200, 400) == (result.n_users, result.n_reports)
    assert int(result.histogram.frequencies.argmax()) == 0
    assert result.histogram.frequencies[0] == pytest.approx(1, abs=0.3)
    assert ["analyzer", "shuffler+analyzer", "shuffler", "network"] == [
        guarantee.coalition for guarantee in result.guarantees
    ]
    assert list((services.directory / "shuffler").glob("batch-*.key")) == []


async def test_grr_serves_where_hashing_gains_nothing(services: Services) -> None:
    """A domain of five: the same way through the same three."""
    signed = await services.publish(domain_size=5, n_min=50, target_size=50, local_epsilon=3.0)
    envelopes = _envelopes(signed, 50)
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=signed.digest(), envelopes=envelopes)
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert result.mechanism == "grr"
    assert int(result.histogram.refined.argmax()) == 0


async def test_a_task_without_local_noise_is_for_those_who_allow_it(services: Services) -> None:
    """An agent with the usual cap refuses; others' true items come out, among dummies by chance."""
    signed = await services.publish(
        protocol="puredump",
        domain_size=5,
        buckets=0,
        local_epsilon=math.inf,
        dummies_per_user=1.5,
        n_min=200,
        target_size=200,
    )
    async with services.stubs() as (agent, shuffler, _):
        request = user_agent_pb2.ContributeRequest(
            task_digest=signed.digest(), value=0, person="one"
        )
        with pytest.raises(grpc.aio.AioRpcError, match="local epsilon is inf"):
            await agent.Contribute(request, timeout=_DEADLINE)
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed, 200)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert (200, 600) == (result.n_users, result.n_reports)
    assert 200 < result.n_dummies < 400
    assert 0 == sum(result.refused.values())
    assert int(result.histogram.refined.argmax()) == 0
    assert math.isfinite(result.guarantees[0].epsilon)
    assert "shuffler+analyzer" == result.guarantees[1].coalition
    assert (math.inf, math.inf) == (result.local_epsilon, result.guarantees[1].epsilon)


async def test_a_second_call_for_a_task_sends_nothing_new(services: Services) -> None:
    """The person is told that the task was answered before."""
    signed = await services.publish()
    async with services.stubs() as (agent, shuffler, _):
        for value, repeated in ((1, False), (2, True)):
            request = user_agent_pb2.ContributeRequest(
                task_digest=signed.digest(), value=value, person="one"
            )
            answer = await agent.Contribute(request, timeout=_DEADLINE)
            assert repeated == answer.repeated
            assert answer.local_epsilon == 2.0
        del shuffler


async def test_an_acknowledgement_has_one_length(services: Services) -> None:
    """Whoever watches the network does not see which of them are for what came again."""
    signed = await services.publish()
    [envelope] = _envelopes(signed, 1)
    request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
    async with services.stubs() as (_, shuffler, _):
        first = await shuffler.Submit(request, timeout=_DEADLINE)
        again = await shuffler.Submit(request, timeout=_DEADLINE)
    assert (first.repeated, again.repeated) == (False, True)
    assert first.ByteSize() == again.ByteSize()


async def test_what_was_acknowledged_survives_a_restart_of_the_shuffler(
    services: Services,
) -> None:
    """Half of the users before, half after; no one is lost or counted twice."""
    signed = await services.publish(n_min=20, target_size=20)
    envelopes = _envelopes(signed, 20)
    async with services.stubs() as (_, shuffler, _analyzer):
        for envelope in envelopes[:10]:
            request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
            await shuffler.Submit(request, timeout=_DEADLINE)
    await services.shuffler.stop()
    await services.start_shuffler(services.shuffler.address)
    async with services.stubs() as (_, shuffler, _analyzer):
        for envelope in envelopes[5:]:
            request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
            await shuffler.Submit(request, timeout=_DEADLINE)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 20 == result.n_users
    assert 0 == sum(result.refused.values())


async def test_a_batch_waits_for_an_analyzer_that_is_away(services: Services) -> None:
    """It is delivered when the analyzer is back."""
    signed = await services.publish(n_min=10, target_size=10)
    envelopes = _envelopes(signed, 10)
    async with services.stubs() as (_, shuffler, _analyzer):
        fetch = shuffler_pb2.FetchTaskRequest(task_digest=signed.digest())
        await shuffler.FetchTask(fetch, timeout=_DEADLINE)
        address = services.analyzer.address
        await services.analyzer.stop()
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=signed.digest(), envelopes=envelopes)
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        await asyncio.sleep(0.5)
    await services.start_analyzer(address)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 10 == result.n_users


async def test_every_service_reports_its_health(services: Services) -> None:
    """grpc.health.v1, for the server and for its service by name."""
    for party, address, name in (
        ("user_agent", services.user_agent.address, "shuffledp.v1.UserAgent"),
        ("shuffler", services.shuffler.address, "shuffledp.v1.Shuffler"),
        ("analyzer", services.analyzer.address, "shuffledp.v1.Analyzer"),
    ):
        channel_to = services.channel_as("operator") if party == "analyzer" else None
        async with channel_to or services.channel(party, address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in ("", name):
                request = health_pb2.HealthCheckRequest(service=service)
                health = await stub.Check(request, timeout=_DEADLINE)
                assert health_pb2.HealthCheckResponse.SERVING == health.status


async def test_one_party_cannot_pass_for_another(services: Services) -> None:
    """Whoever expects the analyzer does not talk to the shuffler, though both are genuine."""
    async with services.channel("analyzer", services.shuffler.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)

    assert grpc.StatusCode.UNAVAILABLE is caught.value.code()


async def test_plaintext_works_on_loopback_by_an_explicit_flag(tmp_path: Path) -> None:
    """Without a certificate anywhere; the token is asked for all the same."""
    settings = AnalyzerSettings(state_directory=tmp_path / "analyzer", plaintext=True)
    service = await analyzer.server.start(settings)
    token = tmp_path / "analyzer" / "operator.token"
    try:
        async with OperatorClient.connect(service.address, None, token) as operator:
            signed = await operator.create_task(draft())
    finally:
        await service.stop()

    assert Task.from_bytes(signed.task_bytes).domain_size == 100
    assert list(tmp_path.rglob("*.pem")) == []
