"""Access control over real connections."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import CALLS, Caller, connections_of
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor
from shuffledp.common.runtime.certificates import FRONT_END, Authority, Certificate
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.rpc import bind, make_server, open_channel
from shuffledp.common.runtime.tls import Tls, TlsFiles, Trust, development_files
from shuffledp.common.wire.tasks import draft_to_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc, shuffler_pb2
from tests.support.clients import DEADLINE, envelopes, fetch_task, refusal, result_of
from tests.support.services import Services
from tests.support.tasks import draft

_DENIED = "PERMISSION_DENIED"


async def _status(call: Awaitable[object]) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def test_a_certificate_opens_the_calls_of_its_party_and_no_others(services: Services) -> None:
    """All certificates are by one authority, and all callers show the operator's token."""
    digest = (await services.publish()).digest()
    token = (services.directory / "analyzer" / "operator.token").read_text(encoding="ascii")
    beside: Any = {"timeout": DEADLINE, "metadata": (("authorization", f"Bearer {token}"),)}
    draft_message = draft_to_wire(draft(services.shuffler_key))
    for name, statuses in {
        "shuffler": ["OK", "INVALID_ARGUMENT", _DENIED, _DENIED],
        "operator": [_DENIED, _DENIED, "OK", "FAILED_PRECONDITION"],
        "user_agent": [_DENIED] * 4,
        "analyzer": [_DENIED] * 4,
        FRONT_END: [_DENIED] * 4,
    }.items():
        async with services.channel_as(name) as channel:
            stub = analyzer_pb2_grpc.AnalyzerStub(channel)
            calls = (
                stub.GetTask(analyzer_pb2.GetTaskRequest(task_digest=digest), **beside),
                stub.DeliverPart(iter([analyzer_pb2.DeliverPartRequest()]), **beside),
                stub.CreateTask(draft_message, **beside),
                stub.GetResult(analyzer_pb2.GetResultRequest(task_digest=digest), **beside),
            )
            assert statuses == [await _status(call) for call in calls], name


async def test_every_call_of_an_operator_asks_for_the_token(services: Services) -> None:
    """A missing or wrong token is refused before the message is read, despite a certificate."""
    operators = {Caller.OPERATOR, Caller.TOKEN_HOLDER}
    asking = [name for name, call in CALLS.items() if call.caller in operators]
    elsewhere = ("/shuffledp.v1.Issuer/", "/shuffledp.v1.Relay/")  # see their own tests
    methods = [name for name in asking if not name.startswith(elsewhere)]
    assert len(methods) > 5
    for method in methods:
        to_analyzer = ".Analyzer/" in method
        shuffler = services.channel("shuffler", services.shuffler.address)
        async with services.channel_as("operator") if to_analyzer else shuffler as channel:
            for credential in (None, "nonsense", "Bearer nonsense"):
                metadata = () if credential is None else (("authorization", credential),)
                call: Any = channel.unary_unary(method)
                status, _ = await refusal(call(b"", timeout=DEADLINE, metadata=metadata))
                assert "UNAUTHENTICATED" == status, method


async def test_nobody_connects_to_the_analyzer_without_a_certificate(services: Services) -> None:
    """A certificate by another authority does not help; devices need none at the shuffler."""
    stranger = services.directory / "stranger"
    development_files(stranger, "shuffler", SystemClock())
    authority = (services.directory / "tls" / "authority.pem").read_bytes()
    own = TlsFiles.within(stranger, "shuffler").read()
    request = analyzer_pb2.GetTaskRequest(task_digest=bytes(32))
    for identity in (None, own):
        async with open_channel(
            services.analyzer.address, "analyzer", authority, own=identity
        ) as channel:
            stub = analyzer_pb2_grpc.AnalyzerStub(channel)
            assert "UNAVAILABLE" == await _status(stub.GetTask(request, timeout=DEADLINE))
    assert "NOT_FOUND" == await _status(fetch_task(services, bytes(32)))


@pytest.mark.own_services
async def test_renewed_certificates_are_shown_without_a_restart(services: Services) -> None:
    """Only callers by the new authority are served; a certificate beside an old key is ignored."""
    signed, tls, clock = await services.publish(), services.directory / "tls", SystemClock()
    old, key = services.channel_as("operator"), (tls / "analyzer.key").read_bytes()
    Authority.read(tls).issue(tls, "analyzer", clock.now())
    (tls / "analyzer.key").write_bytes(key)
    with pytest.raises(SettingsError, match="not the key"):
        Tls.open(TlsFiles.within(tls, "analyzer"), "analyzer", clock)
    request = analyzer_pb2.GetTaskRequest(task_digest=bytes(32))

    async def answer(channel: grpc.aio.Channel) -> str:
        async with channel:
            stub = analyzer_pb2_grpc.AnalyzerStub(channel)
            return await _status(stub.GetTask(request, timeout=DEADLINE))

    assert _DENIED == await answer(services.channel_as("operator"))
    authority = Authority.make(tls, "new", clock.now())
    for party in ("analyzer", "operator", "shuffler"):
        authority.issue(tls, party, clock.now())
    assert _DENIED == await answer(services.channel_as("operator"))
    assert "UNAVAILABLE" == await answer(old)
    # The shuffler shows its new one to an analyzer that trusts the new authority alone.
    address = services.analyzer.address
    await services.analyzer.stop()
    await services.start_analyzer(listen=address)
    assert signed == await fetch_task(services, signed.digest())


@pytest.mark.own_services
async def test_a_revoked_certificate_is_refused_at_once(services: Services) -> None:
    """Also on an open connection; a damaged file of trust changes nothing."""
    trust = services.directory / "tls" / "authority.pem"
    request, before = analyzer_pb2.GetTaskRequest(task_digest=bytes(32)), trust.read_bytes()
    own = development_files(trust.parent, "shuffler", SystemClock()).certificate
    line = f"revoked: {Certificate.read(own or trust).fingerprint}\n".encode()
    async with services.channel_as("shuffler") as channel:
        stub = analyzer_pb2_grpc.AnalyzerStub(channel)
        for content, status in (
            (before, "NOT_FOUND"),
            (before + line, _DENIED),
            (before, "NOT_FOUND"),
            (before + line[:-2], "NOT_FOUND"),
        ):
            trust.write_bytes(content)
            assert status == await _status(stub.GetTask(request, timeout=DEADLINE))


@pytest.mark.own_services
async def test_an_authority_certifies_no_other_organizations_party(services: Services) -> None:
    """
    The holder of the operator's authority issues a certificate of the shuffler.

    The analyzer trusts both authorities, and yet neither the analyzer accepts the caller, nor a
    device such a server.
    """
    tls, clock = services.directory / "tls", SystemClock()
    own = Authority.read(tls).certificate
    other = services.directory / "other"
    rogue = development_files(other, "shuffler", clock).read()
    operators = Authority.read(other).certificate
    trust = Trust({"analyzer": own, "shuffler": own, "operator": operators})
    (tls / "authority.pem").write_bytes(trust.to_bytes())
    request = analyzer_pb2.GetTaskRequest(task_digest=bytes(32))
    right = development_files(tls, "shuffler", clock).read()
    for identity, status in ((right, "NOT_FOUND"), (rogue, _DENIED)):
        async with open_channel(
            services.analyzer.address, "analyzer", right.authority, own=identity
        ) as channel:
            stub = analyzer_pb2_grpc.AnalyzerStub(channel)
            assert status == await _status(stub.GetTask(request, timeout=DEADLINE))

    server = make_server(AdmissionInterceptor(Admission()), connections_of("shuffledp.v1.Shuffler"))
    checks = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    files = TlsFiles.within(other, "shuffler")
    address = bind(server, "127.0.0.1:0", Tls.open(files, "shuffler", clock))
    await server.start()
    for trusted, status in ((rogue.authority, "OK"), (right.authority, "UNAVAILABLE")):
        async with open_channel(address, "shuffler", trusted) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            call = stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
            assert status == await _status(call)
    await server.stop(0)


@pytest.mark.own_services
async def test_a_batch_waits_for_the_right_certificate(services: Services) -> None:
    """While the shuffler shows another party's certificate, nothing is quarantined."""
    signed = await services.publish(n_min=2, target_size=2)
    tls = services.directory / "tls"
    right = {kind: (tls / f"shuffler.{kind}").read_bytes() for kind in ("pem", "key")}
    async with services.stubs() as (_, shuffler, _analyzer):
        fetch = shuffler_pb2.FetchTaskRequest(task_digest=signed.digest())
        await shuffler.FetchTask(fetch, timeout=DEADLINE)
        for kind in right:
            (tls / f"shuffler.{kind}").write_bytes((tls / f"user_agent.{kind}").read_bytes())
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=envelopes(signed, 2)
        )
        await shuffler.SubmitBulk(bulk, timeout=DEADLINE)
        ask = shuffler_pb2.GetBatchStatusRequest(task_digest=signed.digest())
        states = set[int]()
        async with asyncio.timeout(DEADLINE):  # workers start on the first batch
            while shuffler_pb2.BATCH_STATE_PERMUTED not in states:
                states.add((await shuffler.GetBatchStatus(ask, timeout=DEADLINE)).state)
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.3)
        last = await shuffler.GetBatchStatus(ask, timeout=DEADLINE)
        assert shuffler_pb2.BATCH_STATE_PERMUTED == last.state
    for kind, content in right.items():
        (tls / f"shuffler.{kind}").write_bytes(content)

    assert 2 == (await result_of(services, signed)).n_users


async def test_health_cannot_be_watched(services: Services) -> None:
    """A stream of answers would last as long as the caller likes."""
    async with services.channel("shuffler", services.shuffler.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
        assert (await watch.code()).name == "UNIMPLEMENTED"
