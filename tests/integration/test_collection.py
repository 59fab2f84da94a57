"""Collections over three real servers, with their receipts, proofs and sentinels."""

import asyncio
import json
from pathlib import Path

import grpc
import numpy as np
import pytest

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES, split_every
from shuffledp.common.errors import PeerRefusalError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.task.task import Task
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support import clients
from tests.support.command_line import run_command
from tests.support.services import Services
from tests.support.tasks import draft


@pytest.mark.own_services
async def test_a_histogram_comes_out_of_three_servers(services: Services) -> None:
    """Users answer through the user agent, one of them twice, and in bulk."""
    shown = {"title": "Flu", "prompt": "Which town?", "purpose": "care"}
    signed = await services.publish(n_min=200, target_size=200, local_epsilon=4.0, **shown)
    request = user_agent_pb2.GetQuestionRequest(task_digest=signed.digest())
    async with services.stubs() as (agent, _, _analyzer):
        answer = await agent.GetQuestion(request)
    assert {**shown, "series": ""} == dict(answer.texts)
    for person in ("one", "two", "three"):
        assert not (await clients.contribute(services, signed, person)).repeated
    assert (await clients.contribute(services, signed, "one", value=2)).repeated
    outcomes = (
        await clients.submit_bulk(services, signed, clients.envelopes(signed, 197))
    ).outcomes
    result = await clients.result_of(services, signed)

    assert {shuffler_pb2.SUBMISSION_OUTCOME_STORED} == set(outcomes)
    assert BatchState.ERASED is await clients.final_state(services, signed)
    assert (200, 400) == (result.n_users, result.n_reports)
    assert 0 == int(result.histogram.frequencies.argmax())
    assert result.histogram.frequencies[0] == pytest.approx(1, abs=0.3)
    assert [*("analyzer", "analyzer+sybils", "shuffler+analyzer"), *("shuffler", "network")] == [
        guarantee.coalition for guarantee in result.guarantees
    ]
    assert [] == list((services.directory / "shuffler").glob("batch-*.key"))


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite != DEFAULT_SUITE])
@pytest.mark.own_services
async def test_acknowledged_submissions_outlive_the_absence_of_services(
    services: Services, suite: str
) -> None:
    """All services restart while users submit; the analyzer is down when the batch closes."""
    key = (services.directory / "shuffler" / f"envelope-{suite}.pub").read_text(encoding="ascii")
    wanted = draft(bytes.fromhex(key), suite=suite, n_min=20, target_size=20)
    async with services.operator() as operator:
        signed, _ = await operator.publish_task(wanted)
    await clients.contribute(services, signed)
    users = clients.envelopes(signed, 19)
    await clients.submit(services, signed, *users[:10])
    await services.stop()
    await services.start()
    assert signed == await clients.fetch_task(services, signed.digest())
    address = services.analyzer.address
    await services.analyzer.stop()
    await clients.submit(services, signed, *users[5:])
    await services.start_analyzer(listen=address)
    result = await clients.result_of(services, signed)

    assert suite == Task.from_bytes(signed.task_bytes).suite
    assert (20, 0) == (result.n_users, sum(result.refused.values()))


async def test_a_device_checks_that_it_was_counted(services: Services) -> None:
    """The analyzer's signed proof, fetched through the shuffler, covers several buckets."""
    signed = await services.publish(n_min=600, target_size=600)
    for person in ("one", "two"):
        await clients.contribute(services, signed, person)
    question = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="one")
    stranger = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="nobody")
    async with services.stubs() as (agent, _, _analyzer):
        before = await agent.GetReceipt(question, timeout=clients.DEADLINE)
        await clients.submit_bulk(services, signed, clients.envelopes(signed, 598))
        async with asyncio.timeout(clients.DEADLINE):
            while (
                await agent.GetReceipt(question, timeout=clients.DEADLINE)
            ).inclusion == "unchecked":
                await asyncio.sleep(0.05)
        after = await agent.GetReceipt(question, timeout=clients.DEADLINE)
        with pytest.raises(grpc.aio.AioRpcError, match="has not answered a task"):
            await agent.GetReceipt(stranger, timeout=clients.DEADLINE)

    assert ("arrived", "unchecked") == (before.state, before.inclusion)
    assert before.receipt
    assert ("arrived", "counted") == (after.state, after.inclusion)


async def test_sentinels_are_delivered_and_not_counted_as_users(
    services: Services, tmp_path: Path
) -> None:
    """An operator plants twenty among forty users."""
    signed = await services.publish(n_min=40, target_size=60, local_epsilon=4.0)
    kept, directory = tmp_path / "sentinels.jsonl", services.directory
    printed = await clients.command(
        services,
        *("sentinels", "plant", "--task", signed.digest().hex(), "--count", "20", "--json"),
        *(f"--address=shuffler={services.shuffler.address}", "--output", str(kept)),
        *("--analyzer-identity", str(directory / "analyzer" / "identity.pub")),
        *("--shuffler-identity", str(directory / "shuffler" / "identity.pub")),
    )
    result = await clients.collect(services, signed, 40)

    planted = json.loads(printed)
    assert (0, 20) == (planted["refused"], planted["acknowledged"])
    assert (40, 80) == (result.n_users, result.n_reports)
    assert (20, 0, 0) == (
        result.n_sentinels,
        result.n_sentinels_missing,
        result.n_sentinels_repeated,
    )
    complaint = "has not been delivered"
    while "has not been delivered" in complaint:  # the proof is kept shortly after the release
        status, looked_up, complaint = await run_command(
            *("sentinels", "check", "--task", signed.digest().hex(), "--input", str(kept)),
            *("--json", f"--address=shuffler={services.shuffler.address}"),
            *("--authority", str(directory / "tls" / "authority.pem")),
            *("--analyzer-identity", str(directory / "analyzer" / "identity.pub")),
        )
    assert 0 == status, complaint
    assert {
        "task_digest": signed.digest().hex(),
        "signer": "analyzer",
        "checked": 20,
        "missing": [],
    } == json.loads(looked_up)
    lines = [json.loads(line) for line in kept.read_text(encoding="ascii").splitlines()]
    assert ["stored", "acknowledged"] * 20 == [one["state"] for one in lines if "state" in one]
    assert 0o600 == kept.stat().st_mode & 0o777


async def test_sentinels_that_fill_several_messages_are_registered(services: Services) -> None:
    """6,000 sentinels of 28 reports fill two calls, as planned and as acknowledged."""
    signed = await services.publish(dummies_per_user=27, n_min=10, target_size=6_010)
    leaves = np.random.default_rng(3).bytes(6_001 * 28 * 32)
    *sentinels, last = split_every(leaves, 28 * 32)
    async with services.operator() as operator:
        for acknowledged in (False, True):
            await operator.register_sentinels(signed.digest(), sentinels, acknowledged=acknowledged)
        with pytest.raises(PeerRefusalError, match="would have 6001 sentinels"):
            await operator.register_sentinels(signed.digest(), [last], acknowledged=False)
