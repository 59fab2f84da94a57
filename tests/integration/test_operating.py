"""Operators close batches and restrict who may submit, against real servers."""

import asyncio
import json

import pytest

from common.errors import PeerUnableError
from common.runtime.rpc import reply
from protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support.clients import (
    DEADLINE,
    contribute,
    credentials,
    envelopes,
    refusal,
    result_of,
    submit,
    submit_bulk,
)
from tests.support.command_line import run_command
from tests.support.services import Services


async def _close(services: Services, digest: bytes, party: str) -> tuple[int | None, str, str]:
    return await run_command(
        *("task", "close", digest.hex(), "--shuffler", services.shuffler.address, "--json"),
        *credentials(services, party),
    )


async def test_an_operator_closes_a_batch_and_nobody_else_does(services: Services) -> None:
    """Another service's token is refused, and so is a batch below n_min; a close releases it."""
    signed = await services.publish(n_min=10, target_size=100)
    *users, last = envelopes(signed, 10)
    await submit_bulk(services, signed, users)
    status, _, complaint = await _close(services, signed.digest(), "analyzer")
    assert (1, True) == (status, "wrong operator token" in complaint)
    status, _, complaint = await _close(services, signed.digest(), "shuffler")
    assert (1, True) == (status, "fewer users than n_min, which is 10" in complaint)
    await submit(services, signed, last)
    for _ in range(2):
        status, printed, _ = await _close(services, signed.digest(), "shuffler")
        assert (0, True) == (status, json.loads(printed)["closed"])

    assert 10 == (await result_of(services, signed)).n_users


async def _ask_for_tokens(services: Services) -> list[str]:
    """Create three tokens, and restart the shuffler with their issuer's identity."""
    file, address = services.directory / "tokens.txt", services.shuffler.address
    status, printed, _ = await run_command(
        *("tokens", "make", "3", "--out", str(file), "--json"),
        *("--key-directory", str(services.directory / "issuer")),
    )
    assert 0 == status
    await services.shuffler.stop()
    await services.start_shuffler(address, token_identity=json.loads(printed)["token_identity"])
    return file.read_text(encoding="ascii").split()


@pytest.mark.own_services
async def test_a_shuffler_that_requires_tokens_takes_no_submission_without(
    services: Services,
) -> None:
    """An answer is resent with its token, which counts once, and reaches no log and no analyzer."""
    tokens = await _ask_for_tokens(services)
    used, unused = (bytes.fromhex(token) for token in tokens[:2])
    signed = await services.publish(n_min=2, target_size=2)
    for person in ("Ada", "Bob"):
        assert "UNAUTHENTICATED" == (await refusal(contribute(services, signed, person)))[0]
    (services.directory / "mine").write_text(f"{tokens[0]} Ada\n", encoding="ascii")
    await services.user_agent.stop()
    await services.start_user_agent(token_file=services.directory / "mine")
    question = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="Ada")
    async with services.stubs() as (agent, shuffler, _analyzer), asyncio.timeout(DEADLINE):
        while (await agent.GetReceipt(question, timeout=DEADLINE)).state != "arrived":
            await asyncio.sleep(0.05)
        for token, code in ((used, "ALREADY_EXISTS"), (unused[:-1], "INVALID_ARGUMENT")):
            request = shuffler_pb2.SubmitRequest(
                task_digest=signed.digest(), envelope=envelopes(signed, 1)[0], token=token
            )
            assert code == (await refusal(shuffler.Submit(request, timeout=DEADLINE)))[0]
    answer = await submit_bulk(services, signed, envelopes(signed, 2), [used, unused])
    await result_of(services, signed)

    assert [
        shuffler_pb2.SUBMISSION_OUTCOME_TOKEN_USED,
        shuffler_pb2.SUBMISSION_OUTCOME_STORED,
    ] == answer.outcomes
    for party in ("shuffler", "analyzer"):
        paths = (services.directory / party).rglob("*")
        written = b"".join(path.read_bytes() for path in paths if path.is_file())
        for text in tokens:
            assert bytes.fromhex(text)[:16] not in written
            assert text.encode() not in written


@pytest.mark.own_services
async def test_a_connection_has_a_limit_without_tokens(services: Services) -> None:
    """The client is told the limit and may retry; another connection is still served."""
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(address, submissions_per_connection=3)
    signed = await services.publish(n_min=10, target_size=10)
    users = envelopes(signed, 5)
    with pytest.raises(PeerUnableError, match="may make 3 submissions; retry later on a new"):
        await reply(submit(services, signed, *users), "the shuffler")
    await submit(services, signed, users[4])
