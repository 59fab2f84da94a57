"""Commands that change a running task or shuffler, against real servers."""

import json
from pathlib import Path

import grpc
import pytest

from protos.shuffledp.v1 import shuffler_pb2
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
    """Not with the token of another service, not below n_min; then the result comes."""
    signed = await services.publish(n_min=10, target_size=100)
    *users, last = envelopes(signed, 10)
    await submit_bulk(services, signed, users)
    status, _, complaint = await _close(services, signed.digest(), "analyzer")
    assert (1, True) == (status, "is not this service" in complaint)
    status, _, complaint = await _close(services, signed.digest(), "shuffler")
    assert (1, True) == (status, "fewer users than n_min, which is 10" in complaint)
    await submit(services, signed, last)
    for _ in range(2):
        status, printed, _ = await _close(services, signed.digest(), "shuffler")
        assert (0, True) == (status, json.loads(printed)["closed"])

    assert 10 == (await result_of(services, signed)).n_users


async def _ask_for_tokens(services: Services) -> list[str]:
    """Make three tokens, and start the shuffler again with their issuer's identity."""
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
async def test_a_shuffler_that_asks_for_tokens_takes_no_one_without(services: Services) -> None:
    """A device with the right file takes part once; the token reaches no log and no analyzer."""
    tokens = await _ask_for_tokens(services)
    used, unused = (bytes.fromhex(token) for token in tokens[:2])
    (services.directory / "mine").write_text(f"{tokens[0]} Ada\n", encoding="ascii")
    await services.user_agent.stop()
    await services.start_user_agent(token_file=services.directory / "mine")
    signed = await services.publish(n_min=2, target_size=2)
    assert "UNAUTHENTICATED" == (await refusal(contribute(services, signed, "Bob")))[0]
    await contribute(services, signed, "Ada")
    async with services.stubs() as (_, shuffler, _analyzer):
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


async def _plant(services: Services, digest: bytes, *more: str) -> tuple[int | None, str, str]:
    """Plant three sentinels, with an authority's copy that has no certificate beside it."""
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
@pytest.mark.own_services
async def test_an_operator_plants_sentinels_where_tokens_are_asked_for(services: Services) -> None:
    """With a certificate from anywhere; refused without tokens, the same ones are sent with."""
    directory = services.directory
    await _ask_for_tokens(services)
    signed = await services.publish(n_min=10, target_size=20)
    digest, few = signed.digest(), directory / "few.txt"
    few.write_bytes((directory / "tokens.txt").read_bytes()[:-161])
    files = {
        "certificate": directory / "tls" / "operator.pem",
        "key": directory / "tls" / "operator.key",
        "analyzer-identity": directory / "analyzer" / "identity.pub",
        "shuffler-identity": directory / "shuffler" / "identity.pub",
    }
    options = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    own, pinned = options[:4], options[4:]

    status, _, complaint = await _plant(services, digest)
    assert (1, True) == (status, "the analyzer at" in complaint)
    status, printed, _ = await _plant(services, digest, *own)
    refused = json.loads(printed)
    assert (1, 3, 0) == (status, refused["refused"], refused["acknowledged"])
    assert ["this shuffler requires a valid token with every submission"] == list(
        refused["reasons"]
    )
    status, _, complaint = await _plant(services, digest, *own, "--tokens", str(few))
    assert (1, True) == (status, "need a token each; the file of tokens holds 2" in complaint)
    tokens = str(directory / "tokens.txt")
    status, printed, complaint = await _plant(services, digest, *own, *pinned, "--tokens", tokens)
    planted = json.loads(printed)
    assert (0, 0, 3) == (status, planted["refused"], planted["acknowledged"])
    assert "Sending 3 sentinels. After an interruption run the same command again.\n" == complaint


@pytest.mark.own_services
async def test_a_connection_has_a_limit_without_tokens(services: Services) -> None:
    """Over it, another connection is served; the refusal asks for a pause."""
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(address, submissions_per_connection=3)
    signed = await services.publish(n_min=10, target_size=10)
    users = envelopes(signed, 5)
    with pytest.raises(grpc.aio.AioRpcError, match="may make 3 submissions") as caught:
        await submit(services, signed, *users)
    await submit(services, signed, users[4])

    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
    assert "shuffledp-foreseen" not in dict(caught.value.trailing_metadata() or ())


@pytest.mark.own_services
async def test_a_socket_has_no_limit_for_all_its_clients_together(
    services: Services, tmp_path: Path
) -> None:
    """GRPC has one name for all of them."""
    await services.shuffler.stop()
    await services.start_shuffler(f"unix:{tmp_path / 'socket'}", submissions_per_connection=1)
    signed = await services.publish(n_min=10, target_size=10)
    for envelope in envelopes(signed, 2):
        [answer] = await submit(services, signed, envelope)
        assert not answer.repeated
