"""One-time tokens over all services: one submission each, and nothing that links two of them."""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest_asyncio

from common.crypto.privacy_tokens import PendingToken, nonce_of
from common.crypto.signing import SignedTask
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from deploy.audit.harness.services import files_of
from deploy.audit.harness.tasks import FAR_FUTURE
from protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support.clients import DEADLINE, contribute, envelopes, refusal, result_of, submit_bulk
from tests.support.services import Services
from user_agent.credentials import CredentialFile
from user_agent.issuer_client import RemoteIssuer

_PEOPLE = ("Ada", "Bo Li", "Cy")
_WORD = 8
"""Bytes of a string that would link an issuance to a redemption: one of 10^7 by chance agrees with
probability 10^14 / 2^64 at most."""


@pytest_asyncio.fixture(loop_scope="session")
async def tokened(tmp_path: Path) -> AsyncIterator[Services]:
    """All services, with an issuer for three people."""
    started = Services(tmp_path)
    await started.start_analyzer()
    await started.start_shuffler()
    await started.start_issuer(_PEOPLE)
    await started.start_user_agent()
    yield started
    await started.stop()


async def _publish(services: Services, n_users: int) -> SignedTask:
    tokens = await services.create_token_key(FAR_FUTURE)
    return await services.publish(n_min=n_users, target_size=n_users, tokens=tokens)


async def _issue(services: Services, pending: PendingToken, credential: bytes) -> bytes:
    """Ask the issuer for a blind signature, as a device does."""
    assert services.issuer is not None
    async with services.channel("issuer", services.issuer.address) as channel:
        return await RemoteIssuer(channel).issue(pending.key.key_id, pending.blinded(), credential)


def _pending(signed: SignedTask) -> PendingToken:
    tokens = Task.from_bytes(signed.task_bytes).tokens
    assert tokens is not None
    challenge = tokens.challenge(signed.digest())
    return PendingToken.draw(tokens.token_key(), challenge, secrets.token_bytes)


async def test_people_contribute_once_each(tokened: Services) -> None:
    """Devices get their tokens; a stranger gets none, and a spent or cut one is refused."""
    signed = await _publish(tokened, 3)
    for person in _PEOPLE[:2]:
        assert (await contribute(tokened, signed, person)).sent
    status, message = await refusal(contribute(tokened, signed, "Mallory"))
    assert ("FAILED_PRECONDITION", True) == (status, "no credential of this person" in message)
    pending = _pending(signed)
    credential = CredentialFile(tokened.credentials).of("Cy")
    token = pending.finalize(await _issue(tokened, pending, credential))
    other = await _publish(tokened, 3)
    forged = pending.key.signed_part(pending.challenge, bytes(32)) + token[-256:]
    async with tokened.stubs() as (_, shuffler, _analyzer):
        for task, sent, code in (
            (signed, b"", "UNAUTHENTICATED"),
            (signed, token[:-1], "INVALID_ARGUMENT"),
            (other, token, "UNAUTHENTICATED"),
            (signed, forged, "UNAUTHENTICATED"),
        ):
            request = shuffler_pb2.SubmitRequest(
                task_digest=task.digest(), envelope=envelopes(task, 1)[0], token=sent
            )
            assert code == (await refusal(shuffler.Submit(request, timeout=DEADLINE)))[0]
    answer = await submit_bulk(tokened, signed, envelopes(signed, 2), [token, token])
    await result_of(tokened, signed)

    assert sorted(answer.outcomes) == [
        shuffler_pb2.SUBMISSION_OUTCOME_STORED,
        shuffler_pb2.SUBMISSION_OUTCOME_TOKEN_USED,
    ]
    assert "ALREADY_EXISTS" == (await refusal(contribute(tokened, signed, "Cy")))[0]


async def test_an_answer_waits_for_an_issuer_that_is_away(tokened: Services) -> None:
    """It is saved, and sent once the issuer is back."""
    signed = await _publish(tokened, 1)
    assert tokened.issuer is not None
    await tokened.issuer.stop()
    status, message = await refusal(contribute(tokened, signed, "Ada"))
    assert ("UNAVAILABLE", True) == (status, "the issuer does not answer" in message)
    await tokened.user_agent.stop()
    await tokened.start_issuer(_PEOPLE)
    await tokened.start_user_agent()
    question = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="Ada")
    async with tokened.stubs() as (agent, _, _analyzer), asyncio.timeout(DEADLINE):
        while (await agent.GetReceipt(question, timeout=DEADLINE)).state != "arrived":
            await asyncio.sleep(0.05)

    assert 1 == (await result_of(tokened, signed)).n_users


def _words(content: Sequence[bytes]) -> set[bytes]:
    """Return all strings of _WORD bytes but those of zeros, which a database has everywhere."""
    found = {
        each[start : start + _WORD] for each in content for start in range(len(each) - _WORD + 1)
    }
    return {word for word in found if word.count(0) < _WORD // 2}


def _unsealed(state: Path, pattern: str) -> list[bytes]:
    """Return the plain content of a party's sealed files."""
    directory = StateDirectory.open(state)
    return [directory.secret(name, bytes) for name in directory.names(pattern)]


def _everything(services: Services, party: str) -> list[bytes]:
    """Return all of a party's files, the sealed ones in plain too."""
    state = services.directory / party
    return [*files_of(state).values(), *_unsealed(state, "*-*.key")]


async def test_nothing_that_issuer_and_shuffler_hold_links_an_issuance_to_a_token(
    tokened: Services,
) -> None:
    """
    Whole states and messages of both share only what the task and the start show everybody.

    One string of the other's view, planted in either, is found.
    """
    signed = await _publish(tokened, 10)
    task_key = _pending(signed).key
    await contribute(tokened, signed, "Ada")
    known = [
        *_everything(tokened, "issuer"),
        *(signed.task_bytes, task_key.der, task_key.key_id),
    ]
    issued, redeemed, tokens = [], [], []
    for person, envelope in zip(_PEOPLE[1:], envelopes(signed, 2), strict=True):
        pending = _pending(signed)
        credential = CredentialFile(tokened.credentials).of(person)
        signature = await _issue(tokened, pending, credential)
        tokens.append(pending.finalize(signature))
        issued += [pending.blinded(), signature, credential, person.encode()]
        redeemed += [tokens[-1], envelope]
        await submit_bulk(tokened, signed, [envelope], [tokens[-1]])
    issuer = _words([*_everything(tokened, "issuer"), *issued])
    shuffler = _words([*_everything(tokened, "shuffler"), *redeemed])
    public = _words([*known, _pending(signed).key.signed_part(_pending(signed).challenge, b"")])

    assert set() == (issuer & shuffler) - public
    for secret in (nonce_of(tokens[0]), tokens[1][-256:]):
        assert _words([secret]) <= shuffler
        assert _words([secret]) <= ((issuer | _words([b"log: " + secret])) & shuffler) - public
    assert _words([issued[0]]) <= issuer
    with sqlite3.connect(tokened.directory / "shuffler" / "spool.sqlite") as connection:
        assert [(3,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
