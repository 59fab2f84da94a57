"""One-time tokens over all services: one submission each, and nothing that links two of them."""

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest_asyncio

from shuffledp.audit.coalitions.flood import run_flood
from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.audit.weaknesses import NOT_BLINDED
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.task.task import Task
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from shuffledp.user_agent.clients import RemoteIssuer
from shuffledp.user_agent.credentials import CredentialFile
from tests.support.audits import audited
from tests.support.clients import DEADLINE, contribute, envelopes, refusal, result_of, submit_bulk
from tests.support.kind_tasks import kind_task
from tests.support.services import Services

_PEOPLE = ("Ada", "Bo Li", "Cy")


@pytest_asyncio.fixture(loop_scope="session")
async def tokened(tmp_path: Path) -> AsyncIterator[Services]:
    """All services, with an issuer for three people."""
    started = Services(tmp_path, _PEOPLE)
    await started.start_analyzer()
    await started.start_shuffler()
    await started.start_issuer()
    await started.start_user_agent()
    yield started
    await started.stop()


async def _publish(services: Services, n_users: int) -> SignedTask:
    tokens = await services.create_token_key(FAR_FUTURE)
    return await services.publish(n_min=n_users, target_size=n_users, tokens=tokens)


async def _issue(services: Services, pending: PendingToken, credential: bytes) -> bytes:
    """Ask the issuer for a blind signature, as a device does."""
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
    assert ("FAILED_PRECONDITION", True) == (status, "has no credential of 'Mallory'" in message)
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
    await tokened.issuer.stop()
    status, message = await refusal(contribute(tokened, signed, "Ada"))
    assert ("UNAVAILABLE", True) == (status, "the issuer does not answer" in message)
    await tokened.user_agent.stop()
    await tokened.start_issuer()
    await tokened.start_user_agent()
    question = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="Ada")
    async with tokened.stubs() as (agent, _, _analyzer), asyncio.timeout(DEADLINE):
        while (await agent.GetReceipt(question, timeout=DEADLINE)).state != "arrived":
            await asyncio.sleep(0.05)

    assert 1 == (await result_of(tokened, signed)).n_users


def test_nothing_that_issuer_and_shuffler_hold_links_a_request_to_a_token() -> None:
    """The audit's search finds such a string, and only such, if devices do not blind requests."""
    subject, rng = audited(kind_task("duchi")), np.random.default_rng(1)
    failed = [
        [row.title for row in run_flood(each, rng) if not row.passed]
        for each in (subject, dataclasses.replace(subject, ports=NOT_BLINDED))
    ]

    assert [[], ["Issuer: what it signed", "Issuer and shuffler: requests and tokens"]] == failed
