"""gRPC reflection: off by default, and bounded like every other call."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from shuffledp.common.runtime.access import CallKind, connections_of
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor
from shuffledp.common.runtime.rpc import bind, make_server
from tests.support.services import Services

_DEADLINE = 10.0
_LIST = reflection_pb2.ServerReflectionRequest(list_services="")
_SHUFFLER = "shuffledp.v1.Shuffler"
_REFLECTION = reflection.SERVICE_NAME


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reflecting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    """The services, with reflection and little time to send at the analyzer and the shuffler."""
    started = Services(tmp_path_factory.mktemp("reflecting"))
    with pytest.MonkeyPatch.context() as patch:
        short = replace(CallKind.REFLECTION.value, read_seconds=1.5)
        patch.setattr(CallKind.REFLECTION, "_value_", short)
        await started.start_analyzer(reflection=True)
        await started.start_shuffler(reflection=True)
        await started.start_user_agent()
        yield started
        await started.stop()


async def _answers(
    channel: grpc.aio.Channel, requests: list[reflection_pb2.ServerReflectionRequest]
) -> list[reflection_pb2.ServerReflectionResponse]:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return [each async for each in stub.ServerReflectionInfo(iter(requests), timeout=_DEADLINE)]


def _names(answer: reflection_pb2.ServerReflectionResponse) -> set[str]:
    return {service.name for service in answer.list_services_response.service}


async def test_without_the_setting_there_is_no_reflection(services: Services) -> None:
    """All three services answer UNIMPLEMENTED."""
    channels = (
        services.channel("shuffler", services.shuffler.address),
        services.channel("user_agent", services.user_agent.address),
        services.channel_as("operator"),
    )
    for channel in channels:
        async with channel:
            # Without a request: grpcio reports INTERNAL if the refusal overtakes one being sent.
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                timeout=_DEADLINE
            )
            assert grpc.StatusCode.UNIMPLEMENTED is await call.code()


async def test_a_connection_holds_one_conversation(reflecting: Services) -> None:
    """A second conversation is refused, and an idle one ends after the time for a request."""
    described = reflection_pb2.ServerReflectionRequest(file_containing_symbol=_SHUFFLER)
    async with reflecting.channel("shuffler", reflecting.shuffler.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(timeout=30)
        await call.write(_LIST)
        listed = await call.read()
        await call.write(described)
        file = await call.read()
        extra = stub.ServerReflectionInfo(timeout=2)
        await extra.write(_LIST)
        assert (await extra.code()).name == "RESOURCE_EXHAUSTED"
        async with asyncio.timeout(_DEADLINE):
            assert (await call.code()).name == "DEADLINE_EXCEEDED"

    assert {_SHUFFLER, "grpc.health.v1.Health"} < _names(listed)
    assert b"SubmitBulk" in b"".join(file.file_descriptor_response.file_descriptor_proto)
    assert 1 == CallKind.REFLECTION.value.peer_calls
    assert await call.details() == "the request did not arrive completely within 1.5 seconds"


async def test_a_conversation_whose_answers_are_not_read_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends at its time limit and frees its place; callers without a deadline get the reason."""
    short = replace(CallKind.REFLECTION.value, seconds=0.5)
    monkeypatch.setattr(CallKind.REFLECTION, "_value_", short)
    interceptor = AdmissionInterceptor(Admission())
    server = make_server(interceptor, connections_of(_SHUFFLER))
    reflection.enable_server_reflection((reflection.SERVICE_NAME,), server)
    address = bind(server, "127.0.0.1:0", None)
    await server.start()
    described = reflection_pb2.ServerReflectionRequest(file_containing_symbol=_REFLECTION)
    narrow = (("grpc.http2.lookahead_bytes", 16 * 1024), ("grpc.http2.bdp_probe", 0))
    async with grpc.aio.insecure_channel(address, options=narrow) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        for _ in range(150):  # the questions fit into the buffers on the way, their answers do not
            await call.write(described)
        await asyncio.sleep(short.seconds + 0.3)
        async with asyncio.timeout(_DEADLINE):
            [listed] = await _answers(channel, [_LIST])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _read_all(call)
    await server.stop(0)

    assert {_REFLECTION} == _names(listed)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()
    assert "the call did not finish within 0.5 seconds" == caught.value.details()


async def _read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_the_analyzer_reflects_to_callers_with_a_certificate(reflecting: Services) -> None:
    """Nobody connects to it without a certificate: see test_callers.py."""
    async with reflecting.channel_as("operator") as channel:
        [listed] = await _answers(channel, [_LIST])

    assert "shuffledp.v1.Analyzer" in _names(listed)
