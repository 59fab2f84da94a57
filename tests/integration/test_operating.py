"""What an operator does at the command line, against real servers."""

import asyncio
import json
from pathlib import Path

import grpc
import numpy as np
import pytest

from common.crypto.signing import SignedTask
from common.crypto.tokens import TokenIssuer
from common.task.task import Task
from deploy.audit.harness.services import Services
from protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support.command_line import run_command
from user_agent.contribution import Contributor

_DEADLINE = 20.0


async def _close(services: Services, digest: bytes, token: str) -> tuple[int | None, str, str]:
    return await run_command(
        *("task", "close", digest.hex(), "--shuffler", services.shuffler.address, "--json"),
        *("--token-file", str(services.directory / token / "operator.token")),
        *("--authority", str(services.directory / "tls" / "authority.pem")),
    )


def _envelopes(signed: SignedTask, count: int) -> list[bytes]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(1)
    return [contributor.prepare(0, rng) for _ in range(count)]


async def test_an_operator_closes_a_batch_and_nobody_else_does(services: Services) -> None:
    """Not with the token of another service, not below n_min; then the result comes."""
    signed = await services.publish(n_min=10, target_size=100)
    envelopes = _envelopes(signed, 10)
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=signed.digest(), envelopes=envelopes[:9])
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        status, _, complaint = await _close(services, signed.digest(), "analyzer")
        assert (1, True) == (status, "is not this service" in complaint)
        with pytest.raises(grpc.aio.AioRpcError, match="needs an operator's token"):
            await shuffler.CloseBatch(
                shuffler_pb2.CloseBatchRequest(task_digest=signed.digest()), timeout=_DEADLINE
            )
        status, _, complaint = await _close(services, signed.digest(), "shuffler")
        assert (1, True) == (status, "fewer users than n_min, which is 10" in complaint)
        last = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelopes[9])
        await shuffler.Submit(last, timeout=_DEADLINE)
    for _ in range(2):
        status, printed, _ = await _close(services, signed.digest(), "shuffler")
        assert (0, True) == (status, json.loads(printed)["closed"])
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 10 == result.n_users


async def test_a_shuffler_that_asks_for_tokens_takes_no_one_without(services: Services) -> None:
    """A device with the right file takes part once; the token reaches no log and no analyzer."""
    directory = services.directory
    status, printed, _ = await run_command(
        *("tokens", "make", "3", "--out", str(directory / "tokens.txt"), "--json"),
        *("--key-directory", str(directory / "issuer")),
    )
    assert 0 == status
    tokens = (directory / "tokens.txt").read_text(encoding="ascii").split()
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(address, token_identity=json.loads(printed)["token_identity"])
    (directory / "mine").write_text(f"{tokens[0]} Ada\n", encoding="ascii")
    await services.user_agent.stop()
    await services.start_user_agent(token_file=directory / "mine")
    signed = await services.publish(n_min=2, target_size=2)
    async with services.stubs() as (agent, shuffler, _):
        ada, bob = (
            user_agent_pb2.ContributeRequest(task_digest=signed.digest(), value=1, person=person)
            for person in ("Ada", "Bob")
        )
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await agent.Contribute(bob, timeout=_DEADLINE)
        await agent.Contribute(ada, timeout=_DEADLINE)
        used, unused = bytes.fromhex(tokens[0]), bytes.fromhex(tokens[1])
        [envelope, other] = _envelopes(signed, 2)
        for token, code in ((used, "ALREADY_EXISTS"), (unused[:-1], "INVALID_ARGUMENT")):
            submit = shuffler_pb2.SubmitRequest(
                task_digest=signed.digest(), envelope=envelope, token=token
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await shuffler.Submit(submit, timeout=_DEADLINE)
            assert code == caught.value.code().name
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=[envelope, other], tokens=[used, unused]
        )
        answer = await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        await operator.wait_for_result(signed.digest())

    assert [
        shuffler_pb2.SUBMISSION_OUTCOME_TOKEN_USED,
        shuffler_pb2.SUBMISSION_OUTCOME_STORED,
    ] == answer.outcomes
    for folder in ("shuffler", "analyzer"):
        written = _written(directory / folder)
        for text in tokens:
            assert bytes.fromhex(text)[:16] not in written
            assert text.encode() not in written


async def _plant(services: Services, digest: bytes, *more: str) -> tuple[int | None, str, str]:
    """Plant three, as an operator whose certificate does not lie beside the authority."""
    directory = services.directory
    authority = directory / "elsewhere" / "authority.pem"
    authority.parent.mkdir(exist_ok=True)
    authority.write_bytes((directory / "tls" / "authority.pem").read_bytes())
    return await run_command(
        *("sentinels", "plant", "--task", digest.hex(), "--count", "3", "--json"),
        *("--shuffler", services.shuffler.address, "--analyzer", services.analyzer.address),
        *("--token-file", str(directory / "analyzer" / "operator.token")),
        *("--authority", str(authority), "--output", str(directory / "sentinels.jsonl"), *more),
    )


@pytest.mark.slow
async def test_an_operator_plants_sentinels_where_tokens_are_asked_for(services: Services) -> None:
    """With a certificate from anywhere; refused without tokens, the same ones are sent with."""
    directory = services.directory
    status, printed, _ = await run_command(
        *("tokens", "make", "3", "--out", str(directory / "tokens.txt"), "--json"),
        *("--key-directory", str(directory / "issuer")),
    )
    assert 0 == status
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(address, token_identity=json.loads(printed)["token_identity"])
    signed = await services.publish(n_min=10, target_size=20)
    own = tuple(
        text
        for option, file in (("--certificate", "operator.pem"), ("--key", "operator.key"))
        for text in (option, str(directory / "tls" / file))
    )
    pinned = tuple(
        text
        for party in ("analyzer", "shuffler")
        for text in (f"--{party}-identity", str(directory / party / "identity.pub"))
    )
    tokens = ("--tokens", str(directory / "tokens.txt"))

    status, _, complaint = await _plant(services, signed.digest())
    assert (1, True) == (status, "the analyzer at" in complaint)
    status, printed, _ = await _plant(services, signed.digest(), *own)
    refused = json.loads(printed)
    assert (1, 3, 0) == (status, refused["refused"], refused["acknowledged"])
    assert ["this shuffler requires a valid token with every submission"] == list(
        refused["reasons"]
    )
    (directory / "few.txt").write_bytes((directory / "tokens.txt").read_bytes()[:-161])
    status, _, complaint = await _plant(
        services, signed.digest(), *own, "--tokens", str(directory / "few.txt")
    )
    assert (1, True) == (status, "need a token each; the file of tokens holds 2" in complaint)
    status, printed, complaint = await _plant(services, signed.digest(), *own, *pinned, *tokens)
    planted = json.loads(printed)
    assert (0, 0, 3) == (status, planted["refused"], planted["acknowledged"])
    assert "Sending 3 sentinels. If it is interrupted, the same command goes on.\n" == complaint


def _written(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


async def test_a_connection_has_a_limit_without_tokens(services: Services) -> None:
    """Over it, another connection is served; what is asked for is a pause, not a refusal."""
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(address, submissions_per_connection=3)
    signed = await services.publish(n_min=10, target_size=10)
    envelopes = _envelopes(signed, 5)
    requests = [
        shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
        for envelope in envelopes
    ]
    async with services.stubs() as (_, shuffler, _analyzer):
        for request in requests[:3]:
            await shuffler.Submit(request, timeout=_DEADLINE)
        with pytest.raises(grpc.aio.AioRpcError, match="may make 3 submissions") as caught:
            await shuffler.Submit(requests[3], timeout=_DEADLINE)
    async with services.stubs() as (_, shuffler, _analyzer):
        await shuffler.Submit(requests[3], timeout=_DEADLINE)

    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
    assert "shuffledp-foreseen" not in dict(caught.value.trailing_metadata() or ())


async def test_a_socket_has_no_limit_for_all_its_clients_together(services: Services) -> None:
    """Whoever comes over it has one name for gRPC."""
    await services.shuffler.stop()
    await services.start_shuffler(
        f"unix:{services.directory / 'socket'}", submissions_per_connection=1
    )
    signed = await services.publish(n_min=10, target_size=10)
    for envelope in _envelopes(signed, 2):
        async with services.stubs() as (_, shuffler, _analyzer):
            request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
            answer = await shuffler.Submit(request, timeout=_DEADLINE)
            assert not answer.repeated


def test_a_token_prints_nothing_of_its_key() -> None:
    """Fingerprints only."""
    raw = TokenIssuer.generate()
    issuer = TokenIssuer(raw)

    assert raw.hex() not in repr(issuer) + repr(issuer.identity())
