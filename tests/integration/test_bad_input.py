"""Invalid input gets the right status, and no accepted submission is lost."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import chain
from random import Random
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shuffledp.common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError, ShuffleDpError
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchPart
from shuffledp.common.runtime.rpc import bind, open_channel
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.tasks import draft_to_wire
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, user_agent_pb2
from shuffledp.shuffler.delivery_client import AnalyzerClient
from shuffledp.user_agent.clients import RemoteShuffler
from tests.fuzz.fuzz import given_seed
from tests.support.clients import DEADLINE, contribute, envelopes, fetch_task, refusal, result_of
from tests.support.example_tasks import EXAMPLE_DIGEST
from tests.support.mutation import mutated
from tests.support.parsers import parsers
from tests.support.services import Services
from tests.support.tasks import draft

_UNKNOWN = bytes(32)


async def test_bad_submissions_are_refused_and_the_good_one_is_kept(services: Services) -> None:
    """Each bad submission gets its own status and message; both good ones are counted."""
    signed = await services.publish(n_min=2, target_size=2)
    digest, task = signed.digest(), Task.from_bytes(signed.task_bytes)
    good, last = envelopes(signed, 2)
    key = HpkePublicKey(task.suite, task.shuffler_key)
    one_report = key.sealer(envelope_context(digest))(bytes(16 + 60))
    three_reports = key.sealer(envelope_context(digest))(bytes(16 + 180))
    elsewhere = key.sealer(envelope_context(TaskDigest(_UNKNOWN)))(bytes(16 + 120))
    wrong_role = key.sealer(report_context(digest))(b"i" * 16 + bytes(120))
    flipped = good[:40] + bytes([good[40] ^ 1]) + good[41:]

    async with services.stubs() as (_, shuffler, _analyzer):

        async def submit(envelope: bytes, to: bytes = digest) -> object:
            request = shuffler_pb2.SubmitRequest(task_digest=to, envelope=envelope)
            return await shuffler.Submit(request, timeout=DEADLINE)

        await submit(good)
        for envelope, to, status, message in (
            (good, _UNKNOWN, "NOT_FOUND", "no task with this digest"),
            (good, b"short", "INVALID_ARGUMENT", "task_digest has 5 bytes; it must have 32"),
            (good[:-1], digest, "INVALID_ARGUMENT", "has 183 bytes"),
            (good + b"\0", digest, "INVALID_ARGUMENT", "has 185 bytes"),
            (bytes(2**20 + 1), digest, "INVALID_ARGUMENT", "at most 1048576"),
            (bytes(5 * 2**20), digest, "RESOURCE_EXHAUSTED", ""),
            (b"", digest, "INVALID_ARGUMENT", "has 0 bytes"),
            (one_report, digest, "INVALID_ARGUMENT", "of 2 reports, has 184"),
            (three_reports, digest, "INVALID_ARGUMENT", "of 2 reports, has 184"),
            (elsewhere, digest, "INVALID_ARGUMENT", "does not open"),
            (wrong_role, digest, "INVALID_ARGUMENT", "does not open"),
            (flipped, digest, "INVALID_ARGUMENT", "does not open"),
        ):
            code, details = await refusal(submit(envelope, to))
            assert (status, True) == (code, message in details)
        await submit(last)
    result = await result_of(services, signed)

    assert 2 == result.n_users
    assert 0 == sum(result.refused.values())


async def test_a_value_outside_the_domain_is_refused_at_the_device(services: Services) -> None:
    """The message does not repeat the value; a valid value is accepted afterwards."""
    signed = await services.publish()
    for value in (100, 2**63, 2**64 - 1):
        status, message = await refusal(contribute(services, signed, "one", value))
        assert ("INVALID_ARGUMENT", "a value must lie between 0 and 99") == (status, message)
    await contribute(services, signed, "one", 99)


@pytest.mark.own_services
async def test_a_task_by_another_signer_is_refused_by_shuffler_and_device(
    services: Services,
) -> None:
    """A shuffler that pins another analyzer does not serve its tasks."""
    signed = await services.publish()
    services.identity = "ab" * 32
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(listen=address)
    for call in (fetch_task(services, signed.digest()), contribute(services, signed)):
        status, message = await refusal(call)
        assert ("FAILED_PRECONDITION", True) == (status, "not signed by" in message)


_DEADLINE: Final = 30.0
_INPUTS: Final = int(os.environ.get("SHUFFLEDP_FUZZ_CALLS", "15"))
"""Inputs for each call."""
_SERVICES: Final = {
    "user_agent": user_agent_pb2,
    "shuffler": shuffler_pb2,
    "analyzer": analyzer_pb2,
}
_EXPECTED: Final = {
    *(error.status for error in ShuffleDpError.__subclasses__() if error.status != "INTERNAL"),
    *("OK", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"),
}
"""All but UNKNOWN, INTERNAL and the statuses of a server that hangs or dies."""


_ANSWER_LOST: Final = "answer lost"
"""The server answered a stream that was still being sent: gRPC's client then sometimes fails with
its own INTERNAL, and hides the answer."""


def _calls() -> Iterator[tuple[str, str, Any]]:
    """Yield the party, path and descriptor of every RPC."""
    for party, module in _SERVICES.items():
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield party, f"/{service.full_name}/{method.name}", method
        for method in health_pb2.DESCRIPTOR.services_by_name["Health"].methods:
            yield party, f"/grpc.health.v1.Health/{method.name}", method
    yield "analyzer", "/shuffledp.v1.Analyzer/NoSuchCall", method


async def _status(
    channel: grpc.aio.Channel, path: str, requests: list[bytes], *, stream: bool, token: str
) -> str:
    metadata = (("authorization", f"Bearer {token}"),)

    async def each() -> AsyncIterator[bytes]:
        for request in requests:
            yield request

    try:
        if stream:
            streaming: Any = channel.stream_unary(path)
            await streaming(each(), timeout=_DEADLINE, metadata=metadata)
        elif path.endswith("/Watch"):
            watching: Any = channel.unary_stream(path)
            call = watching(requests[0], timeout=_DEADLINE, metadata=metadata)
            await call.read()
            call.cancel()
        else:
            unary: Any = channel.unary_unary(path)
            await unary(requests[0], timeout=_DEADLINE, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        if "SendMessageOperation" in (error.debug_error_string() or ""):
            return _ANSWER_LOST
        return error.code().name
    return "OK"


def _examples(signed: SignedTask) -> dict[str, tuple[bytes, ...]]:
    """Return examples of each message, for a published task."""
    examples: dict[str, tuple[bytes, ...]] = {}
    for parser in parsers().values():
        seeds = tuple(seed.replace(EXAMPLE_DIGEST, signed.digest()) for seed in parser.seeds)
        examples[parser.message] = examples.get(parser.message, ()) + seeds
    [envelope] = envelopes(signed, 1)
    taken = (
        draft_to_wire(draft()),
        shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope),
    )
    return examples | {type(one).__name__: (one.SerializeToString(),) for one in taken}


@pytest.mark.own_services
async def test_any_bytes_to_any_call_get_an_expected_status(services: Services) -> None:
    """Requests are mutated; SHUFFLEDP_FUZZ_SEED and SHUFFLEDP_FUZZ_CALLS choose others."""
    signed = await services.publish(n_min=20, target_size=1000)
    examples, asked = _examples(signed), analyzer_pb2.GetTaskRequest(task_digest=signed.digest())
    tokens, seen = {"user_agent": ""}, set[str]()
    for party in ("analyzer", "shuffler"):
        tokens[party] = (services.directory / party / "operator.token").read_text(encoding="ascii")
    async with AsyncExitStack() as opened:
        channels = {
            # The analyzer takes connections only from those who show a certificate.
            "analyzer": [services.channel_as("operator"), services.channel_as("shuffler")],
            "shuffler": [services.channel("shuffler", services.shuffler.address)],
            "user_agent": [services.channel("user_agent", services.user_agent.address)],
        }
        for channel in chain(*channels.values()):
            await opened.enter_async_context(channel)
        for party, path, method in _calls():
            seeds = examples.get(method.input_type.name, (asked.SerializeToString(),))
            stream, rng = method.client_streaming, Random(f"{given_seed()} {path}")  # noqa: S311  # not a secret
            for number in range(_INPUTS):
                requests = [mutated(rng, seeds, "protobuf") for _ in range(rng.choice((1, 2, 4)))]
                if stream and rng.random() < 0.5:
                    requests[0] = seeds[0]
                credential = rng.choice((tokens[party], "", "x" * 5000, "~ ~"))
                channel, status = rng.choice(channels[party]), _ANSWER_LOST
                while status == _ANSWER_LOST:
                    status = await _status(channel, path, requests, stream=stream, token=credential)
                seen.add(status)

                assert status in _EXPECTED, (path, number, given_seed(), requests)
    # Some inputs pass all checks, and others each reach a different one.
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED"} <= seen


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x0a\xff", b"\x08"])
async def test_an_answer_that_is_no_message_is_another_partys_failure(garbage: bytes) -> None:
    """A delivery or submission acknowledged with garbage counts as not delivered."""

    async def answered(_requests: AsyncIterator[bytes], _context: object) -> bytes:
        return garbage

    lie: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(answered)
    calls = [
        grpc.method_handlers_generic_handler(
            service.full_name, {method.name: lie for method in service.methods}
        )
        for module in (analyzer_pb2, shuffler_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    server = grpc.aio.server(handlers=calls)
    address = bind(server, "127.0.0.1:0", None)
    await server.start()
    digest = TaskDigest(bytes(32))
    manifest = BatchManifest(
        task_digest=digest, batch_id=BatchId(bytes(16)), n_users=1, n_reports=1
    )
    part = BatchPart(task_digest=digest, part=0, n_reports=1, content_hash=bytes(32))
    try:
        async with open_channel(address, "analyzer", None) as channel:
            for call in (
                AnalyzerClient(channel).get_task(digest),
                AnalyzerClient(channel).begin_delivery(manifest, 1),
                AnalyzerClient(channel).deliver_part(part, []),
                AnalyzerClient(channel).finish_delivery(digest),
                RemoteShuffler(channel).fetch_task(digest),
                RemoteShuffler(channel).submit(digest, b""),
                OperatorClient(channel, address, "token").result(digest),
            ):
                with pytest.raises(PeerError):
                    await call
    finally:
        await server.stop(None)
