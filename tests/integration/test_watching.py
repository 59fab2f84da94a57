"""Receipts, proofs of inclusion and sentinels against real servers."""

import asyncio
import json
from pathlib import Path

import grpc
import numpy as np
import pytest

from common.crypto.signing import PublicIdentity, SignedTask, receipt_holds
from common.errors import BatchStateError, PeerRefusalError
from deploy.clients.analyzer import OperatorClient
from deploy.sentinels.planting import SentinelRun, shuffler_at
from protos.shuffledp.v1 import user_agent_pb2
from tests.support.clients import (
    DEADLINE,
    collect,
    contribute,
    envelopes,
    result_of,
    submit,
    submit_bulk,
)
from tests.support.keys import bulk_receipt_holds
from tests.support.services import Services


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


async def test_every_acknowledgement_is_signed_and_has_one_length(services: Services) -> None:
    """Of one submission, sent twice; and of many, those left out that are not stored."""
    signed = await services.publish(n_min=50, target_size=50)
    digest = signed.digest()
    identity = PublicIdentity.from_hex(services.shuffler_identity, "shuffler_identity")
    one, *many = envelopes(signed, 4)
    first, again = await submit(services, signed, one, one)
    many.insert(1, b"no envelope")
    answers = await submit_bulk(services, signed, many)
    unsigned = await submit_bulk(services, signed, [b"none"])

    assert (False, True) == (first.repeated, again.repeated)
    assert first.ByteSize() == again.ByteSize()
    assert receipt_holds(identity, digest, one, first.receipt)
    assert receipt_holds(identity, digest, one, again.receipt)
    assert bulk_receipt_holds(identity, digest, [many[0], *many[2:]], answers.receipt)
    assert not bulk_receipt_holds(identity, digest, many, answers.receipt)
    assert b"" == unsigned.receipt


async def test_a_device_finds_out_by_itself_that_it_was_counted(services: Services) -> None:
    """Through the shuffler, from the analyzer's signature; in a batch of several buckets."""
    signed = await services.publish(n_min=600, target_size=600)
    for person in ("one", "two"):
        await contribute(services, signed, person)
    question = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="one")
    stranger = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="nobody")
    async with services.stubs() as (agent, _, _analyzer):
        before = await agent.GetReceipt(question, timeout=DEADLINE)
        await submit_bulk(services, signed, envelopes(signed, 598))
        async with asyncio.timeout(DEADLINE):
            while (await agent.GetReceipt(question, timeout=DEADLINE)).inclusion == "unchecked":
                await asyncio.sleep(0.05)
        after = await agent.GetReceipt(question, timeout=DEADLINE)
        with pytest.raises(grpc.aio.AioRpcError, match="has answered no task"):
            await agent.GetReceipt(stranger, timeout=DEADLINE)

    assert ("arrived", "unchecked") == (before.state, before.inclusion)
    assert before.receipt_verified
    assert ("arrived", "counted") == (after.state, after.inclusion)


async def test_sentinels_go_the_way_of_users_and_count_as_none(
    services: Services, tmp_path: Path
) -> None:
    """Planted among forty users; the result is of those forty, and reports every sentinel."""
    signed = await services.publish(n_min=40, target_size=60, local_epsilon=4.0)
    kept = tmp_path / "sentinels.jsonl"
    async with services.operator() as operator:
        await _planting(services, operator, signed, kept).plant(20, over=0.1)
    result = await collect(services, signed, 40)

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

    assert not (tmp_path / "too_many.jsonl").exists()
    assert '"state"' not in (tmp_path / "sentinels.jsonl").read_text(encoding="ascii")


async def test_a_sentinel_that_fills_the_batch_is_a_sentinel(
    services: Services, tmp_path: Path
) -> None:
    """However fast the batch is, it was registered before it was sent."""
    signed = await services.publish(n_min=15, target_size=20)
    await submit_bulk(services, signed, envelopes(signed, 16))
    async with services.operator() as operator:
        planting = _planting(services, operator, signed, tmp_path / "sentinels.jsonl")
        sentinels = await planting.plant(5, over=3.0)
    result = await result_of(services, signed)

    assert "refused" == sentinels[-1].state
    assert (16, 0) == (result.n_users, result.n_sentinels_missing)


async def test_sentinels_that_fill_several_messages_are_registered(services: Services) -> None:
    """Six thousand of 28 reports, twice the contents of one call; as acknowledged, too."""
    signed = await services.publish(dummies_per_user=27, n_min=10, target_size=6_010)
    leaves = np.random.default_rng(3).bytes(6_001 * 28 * 32)
    *sentinels, last = [leaves[at : at + 28 * 32] for at in range(0, len(leaves), 28 * 32)]
    async with services.operator() as operator:
        for acknowledged in (False, True):
            await operator.register_sentinels(signed.digest(), sentinels, acknowledged=acknowledged)
        with pytest.raises(PeerRefusalError, match="would have 6001 sentinels"):
            await operator.register_sentinels(signed.digest(), [last], acknowledged=False)
