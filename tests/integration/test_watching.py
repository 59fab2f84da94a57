import asyncio
import json
from pathlib import Path

import grpc
import numpy as np
import pytest

from common.crypto.receipt import bulk_receipt_holds, receipt_holds
from common.crypto.signing import PublicIdentity, SignedTask
from common.errors import BatchStateError, PeerRefusalError
from common.task.task import Task
from deploy.clients.analyzer import OperatorClient
from deploy.sentinels.planting import SentinelRun, shuffler_at
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, user_agent_pb2
from tests.support.services import Services
from user_agent.contribution import Contributor

_DEADLINE = 20.0


def _envelopes(signed: SignedTask, count: int) -> list[bytes]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(1)
    return [contributor.prepare(0, rng) for _ in range(count)]


def _planting(
    services: Services, operator: OperatorClient, signed: SignedTask, kept: Path
) -> SentinelRun:
    return SentinelRun(
        digest=signed.digest(),
        analyzer=operator,
        connect=lambda: shuffler_at(
            services.shuffler.address, (services.directory / "tls" / "authority.pem").read_bytes()
        ),
        journal=kept,
        rng=np.random.default_rng(2),
        analyzer_identity=PublicIdentity.from_hex(services.identity, "analyzer_identity"),
        shuffler_identity=PublicIdentity.from_hex(services.shuffler_identity, "shuffler_identity"),
    )


async def test_every_acknowledgement_is_signed(services: Services) -> None:
    """Of one submission, sent twice; and of many, those left out that are not stored."""
    signed = await services.publish(n_min=50, target_size=50)
    digest, shuffler_identity = (
        signed.digest(),
        PublicIdentity.from_hex(services.shuffler_identity, "shuffler_identity"),
    )
    one, *many = _envelopes(signed, 4)
    many.insert(1, b"no envelope")
    async with services.stubs() as (_, shuffler, _analyzer):
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=one)
        for repeated in (False, True):
            answer = await shuffler.Submit(request, timeout=_DEADLINE)
            assert repeated == answer.repeated
            assert receipt_holds(shuffler_identity, digest, one, answer.receipt)
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=many)
        answers = await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        nothing = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=[b"none"])
        unsigned = await shuffler.SubmitBulk(nothing, timeout=_DEADLINE)

    stored = [many[0], *many[2:]]
    assert bulk_receipt_holds(shuffler_identity, digest, stored, answers.receipt)
    assert not bulk_receipt_holds(shuffler_identity, digest, many, answers.receipt)
    assert b"" == unsigned.receipt


async def test_a_device_finds_out_by_itself_that_it_was_counted(services: Services) -> None:
    """Through the shuffler, from what the analyzer signed; in a batch of several buckets."""
    signed = await services.publish(n_min=600, target_size=600)
    digest = signed.digest()
    async with services.stubs() as (agent, shuffler, _):
        for person in ("one", "two"):
            await agent.Contribute(
                user_agent_pb2.ContributeRequest(task_digest=digest, value=1, person=person),
                timeout=_DEADLINE,
            )
        question = user_agent_pb2.GetReceiptRequest(task_digest=digest, person="one")
        before = await agent.GetReceipt(question, timeout=_DEADLINE)
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=_envelopes(signed, 598))
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        async with asyncio.timeout(_DEADLINE):
            while (await agent.GetReceipt(question, timeout=_DEADLINE)).inclusion == "unchecked":
                await asyncio.sleep(0.05)
        after = await agent.GetReceipt(question, timeout=_DEADLINE)
        stranger = user_agent_pb2.GetReceiptRequest(task_digest=digest, person="nobody")
        with pytest.raises(grpc.aio.AioRpcError, match="has answered no task"):
            await agent.GetReceipt(stranger, timeout=_DEADLINE)

    assert ("arrived", "unchecked", True) == (
        before.state,
        before.inclusion,
        before.receipt_verified,
    )
    assert ("arrived", "counted") == (after.state, after.inclusion)


async def test_sentinels_go_the_way_of_users_and_count_as_none(
    services: Services, tmp_path: Path
) -> None:
    """Planted among forty users; the result is of those forty, and says that all came through."""
    signed = await services.publish(n_min=40, target_size=60, local_epsilon=4.0)
    kept = tmp_path / "sentinels.jsonl"
    async with services.operator() as operator, services.stubs() as (_, shuffler, _analyzer):
        await _planting(services, operator, signed, kept).plant(20, over=0.1)
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed, 40)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        async with asyncio.timeout(_DEADLINE):
            result = await operator.wait_for_result(signed.digest())

    assert (40, 80) == (result.n_users, result.n_reports)
    assert (20, 0, 0) == (
        result.n_sentinels,
        result.n_sentinels_missing,
        result.n_sentinels_repeated,
    )
    lines = [json.loads(line) for line in kept.read_text(encoding="ascii").splitlines()]
    assert ["stored", "acknowledged"] * 20 == [one["state"] for one in lines if "state" in one]
    assert 0o600 == kept.stat().st_mode & 0o777


async def test_more_sentinels_than_there_is_room_for_are_not_sent(
    services: Services, tmp_path: Path
) -> None:
    """A batch full of them would hold too few users; nothing reaches the shuffler."""
    signed = await services.publish(n_min=10, target_size=20)
    async with services.operator() as operator:
        too_many = _planting(services, operator, signed, tmp_path / "too_many.jsonl")
        with pytest.raises(BatchStateError, match="there is room for 10"):
            await too_many.plant(11, over=0.0)
        one = np.random.default_rng(3).bytes(64)
        await operator.register_sentinels(signed.digest(), [one], acknowledged=False)
        planting = _planting(services, operator, signed, tmp_path / "sentinels.jsonl")
        with pytest.raises(PeerRefusalError, match=r"would have 11 sentinels; .* room for 10"):
            await planting.plant(10, over=0.0)

    assert [] == too_many.sentinels
    assert not (tmp_path / "too_many.jsonl").exists()
    assert {"planned"} == {one.state for one in planting.sentinels}


async def test_a_sentinel_that_fills_the_batch_is_a_sentinel(
    services: Services, tmp_path: Path
) -> None:
    """However fast the batch is, it was registered before it was sent."""
    signed = await services.publish(n_min=15, target_size=20)
    async with services.operator() as operator, services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed, 16)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        planting = _planting(services, operator, signed, tmp_path / "sentinels.jsonl")
        await planting.plant(5, over=3.0)
        async with asyncio.timeout(_DEADLINE):
            result = await operator.wait_for_result(signed.digest())

    assert "refused" == planting.sentinels[-1].state
    assert (16, 0) == (result.n_users, result.n_sentinels_missing)


async def test_only_an_operator_registers_sentinels(services: Services) -> None:
    """A device has no token; whoever had one could take users' reports out of a batch."""
    signed = await services.publish()
    request = analyzer_pb2.RegisterSentinelsRequest(task_digest=signed.digest())
    async with services.stubs() as (_, _shuffler, analyzer):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await analyzer.RegisterSentinels(request, timeout=_DEADLINE)

    assert grpc.StatusCode.UNAUTHENTICATED is caught.value.code()


async def test_sentinels_that_fill_several_messages_are_registered(services: Services) -> None:
    """Six thousand of 28 reports, twice what one call carries; as acknowledged, too."""
    signed = await services.publish(dummies_per_user=27, n_min=10, target_size=6_010)
    leaves = np.random.default_rng(3).bytes(6_000 * 28 * 32)
    sentinels = [leaves[start : start + 28 * 32] for start in range(0, len(leaves), 28 * 32)]
    async with services.operator() as operator:
        for acknowledged in (False, True):
            await operator.register_sentinels(signed.digest(), sentinels, acknowledged=acknowledged)
        with pytest.raises(PeerRefusalError, match="would have 6001 sentinels"):
            await operator.register_sentinels(
                signed.digest(), [np.random.default_rng(4).bytes(28 * 32)], acknowledged=False
            )
