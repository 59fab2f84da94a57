"""A shuffler of a coordinator and three front-ends, over TLS and PostgreSQL."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from shuffledp.common.crypto.signing import PublicIdentity, is_valid_receipt
from shuffledp.common.errors import PeerError, SettingsError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.runtime.tls import TlsFiles
from shuffledp.common.wire.batches import progress_from_wire
from shuffledp.protos.shuffledp.v1 import (
    coordinator_pb2,
    coordinator_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
)
from tests.support.clients import DEADLINE, envelopes, final_state, refusal, result_of
from tests.support.front_ends import ManyServices
from tests.support.postgres import PostgresServer

_NOTHING: Final = coordinator_pb2.GetIdentityRequest()


@pytest_asyncio.fixture(loop_scope="session")
async def services(tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[ManyServices]:
    """An analyzer, a coordinator and three front-ends."""
    started = ManyServices(tmp_path)
    await started.start_many(postgres.database(), 3)
    yield started
    await started.stop_many()


async def test_front_ends_collect_one_batch_under_one_identity(services: ManyServices) -> None:
    """Retries at other front-ends are repeats; the coordinator closes at the target."""
    signed = await services.publish(n_min=60, target_size=60, local_epsilon=4.0)
    digest, sent = signed.digest(), envelopes(signed, 60)
    identity = PublicIdentity.from_hex(services.shuffler_identity, "shuffler_identity")
    async with services.front_end_stubs() as stubs:
        for n, stub in enumerate(stubs):
            bulk = sent[10 * n : 10 * n + 20]  # half of them were sent to another before
            answer = await stub.SubmitBulk(
                shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=bulk), timeout=DEADLINE
            )
            expected = {shuffler_pb2.SUBMISSION_OUTCOME_STORED: 20 if n == 0 else 10}
            if n:
                expected[shuffler_pb2.SUBMISSION_OUTCOME_REPEATED] = 10
            assert expected == Counter(answer.outcomes)
        singles = [
            (envelope, stub.Submit(request, timeout=DEADLINE))
            for envelope in sent[40:]
            for request in [shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)]
            for stub in stubs
        ]
        receipts = await asyncio.gather(*(call for _, call in singles))
        for (envelope, _), single in zip(singles, receipts, strict=True):
            assert is_valid_receipt(identity, digest, envelope, single.receipt)
        assert 40 == sum(single.repeated for single in receipts)
        result = await result_of(services, signed)
        assert BatchState.ERASED is await final_state(services, signed)
        status = shuffler_pb2.GetBatchStatusRequest(task_digest=digest)
        assert 60 == (await stubs[0].GetBatchStatus(status, timeout=DEADLINE)).n_users
        late = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelopes(signed, 61)[60])
        assert "FAILED_PRECONDITION" == (await refusal(stubs[0].Submit(late, timeout=DEADLINE)))[0]

    assert (60, 120) == (result.n_users, result.n_reports)
    assert [] == list(services.directory.glob("*/batch-*.key"))
    for front_end in services.directory.glob("front-end-*"):
        assert {"address", "http_address", "lock"} >= {path.name for path in front_end.iterdir()}


@pytest.mark.slow
async def test_front_ends_go_on_while_others_restart(services: ManyServices) -> None:
    """The coordinator is away, then a front-end stops amid calls; no device is refused."""
    signed = await services.publish(n_min=90, target_size=90, local_epsilon=4.0)
    digest, sent = signed.digest(), envelopes(signed, 90)
    requests = [shuffler_pb2.SubmitRequest(task_digest=digest, envelope=each) for each in sent]

    async def submit(number: int) -> bool:
        """Submit to one front-end after the other, as devices behind a balancer do."""
        for turn in range(10):
            stub = stubs[(number + turn) % 3]
            try:
                call = stub.Submit(requests[number], timeout=DEADLINE)
                return (await reply(call, "the front-end")).repeated
            except PeerError:  # safe to retry
                await asyncio.sleep(0.05)
        pytest.fail("no front-end answered")

    async with services.front_end_stubs() as stubs:
        for number in range(3):
            await submit(number)
        internal = services.coordinator
        await services.shuffler.stop()
        await asyncio.gather(*map(submit, range(3, 50)))
        await services.start_coordinator(internal)
        amid = [asyncio.create_task(submit(number)) for number in range(50, 89)]
        await asyncio.sleep(0.01)
        await services.front_ends[1].stop()
        await asyncio.gather(*amid)
        services.front_ends[1] = await services.start_front_end(1)
    async with services.front_end_stubs() as stubs:
        assert not await submit(89)
        result = await result_of(services, signed)

    assert 90 == result.n_users


async def test_only_front_ends_get_keys_and_only_the_coordinator_has_an_operator(
    services: ManyServices,
) -> None:
    """Certificates of the public authority, or of another role, open nothing."""
    signed = await services.publish(n_min=60, target_size=60)
    request = coordinator_pb2.GetBatchRequest(task_digest=signed.digest(), begin=True)
    directory = services.directory
    for folder, name, expected in (
        ("internal", "front-end", "OK"),
        ("internal", "worker", "PERMISSION_DENIED"),
        ("tls", "shuffler", "UNAVAILABLE"),
    ):
        own = TlsFiles.within(directory / folder, name).read()
        authority = (directory / "internal" / "authority.pem").read_bytes()
        async with open_channel(services.coordinator, "coordinator", authority, own=own) as channel:
            stub = coordinator_pb2_grpc.ShufflerCoordinatorStub(channel)
            if expected == "OK":
                assert (await stub.GetBatch(request, timeout=DEADLINE)).HasField("collecting")
            else:
                assert expected == (await refusal(stub.GetIdentity(_NOTHING, timeout=DEADLINE)))[0]
    token = (directory / "shuffler" / "operator.token").read_text(encoding="ascii").strip()
    close = shuffler_pb2.CloseBatchRequest(task_digest=signed.digest())
    unknown = shuffler_pb2.GetBatchStatusRequest(task_digest=bytes(32))
    async with services.front_end_stubs() as [front_end, *_]:
        header = (("authorization", f"Bearer {token}"),)
        call = front_end.CloseBatch(close, metadata=header, timeout=DEADLINE)
        assert "UNAUTHENTICATED" == (await refusal(call))[0]
        assert (
            "NOT_FOUND" == (await refusal(front_end.GetBatchStatus(unknown, timeout=DEADLINE)))[0]
        )


async def test_refusals_of_all_front_ends_are_counted(services: ManyServices) -> None:
    """A front-end saves its counts when it stops; the operator sees the sum."""
    signed = await services.publish(n_min=60, target_size=60)
    request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=b"short")
    async with services.front_end_stubs() as stubs:
        for stub in stubs:
            assert "INVALID_ARGUMENT" == (await refusal(stub.Submit(request, timeout=DEADLINE)))[0]
    for number in range(3):
        await services.front_ends[number].stop()
        services.front_ends[number] = await services.start_front_end(number)
    token = (services.directory / "shuffler" / "operator.token").read_text(encoding="ascii").strip()
    header = (("authorization", f"Bearer {token}"),)
    query = shuffler_pb2.GetBatchProgressRequest(task_digest=signed.digest())
    async with services.channel("shuffler", services.shuffler.address) as channel:
        coordinator = shuffler_pb2_grpc.ShufflerStub(channel)
        answer = await coordinator.GetBatchProgress(query, metadata=header, timeout=DEADLINE)

    assert {"malformed": 3} == progress_from_wire(answer).refused


async def test_a_second_coordinator_does_not_start(services: ManyServices) -> None:
    """The first one's connection holds a lock of the store."""
    with pytest.raises(SettingsError, match="another coordinator uses this store"):
        await services.start_coordinator()
