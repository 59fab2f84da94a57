"""Whatever a stranger sends gets a clear error with the right status; nothing accepted is lost."""

import pytest

from common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from common.messages.submission import Submission, pack
from common.task.task import Task
from common.task_digest import TaskDigest
from protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support.clients import (
    DEADLINE,
    contribute,
    envelopes,
    refusal,
    result_of,
)
from tests.support.services import Services

_UNKNOWN = bytes(32)


async def test_bad_submissions_are_refused_and_the_good_one_is_kept(services: Services) -> None:
    """Unknown task, wrong digest, truncated, oversized, wrong count, flipped bit."""
    signed = await services.publish(n_min=2, target_size=2)
    digest, task = signed.digest(), Task.from_bytes(signed.task_bytes)
    good, last = envelopes(signed, 2)
    key = HpkePublicKey(task.suite, task.shuffler_key)
    one_report = key.seal(bytes(16 + 60), envelope_context(digest))
    three_reports = key.seal(bytes(16 + 180), envelope_context(digest))
    elsewhere = key.seal(bytes(16 + 120), envelope_context(TaskDigest(_UNKNOWN)))
    inner = Submission(submission_id=b"i" * 16, sealed_reports=bytes(120))
    wrong_role = key.seal(pack(inner), report_context(digest))
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
            found, details = await refusal(submit(envelope, to))
            assert (status, True) == (found, message in details)
        await submit(last)
    result = await result_of(services, signed)

    assert 2 == result.n_users
    assert 0 == sum(result.refused.values())


async def test_a_value_outside_the_domain_is_refused_at_the_device(services: Services) -> None:
    """With a sentence that does not repeat it; a right value is accepted afterwards."""
    signed = await services.publish()
    async with services.stubs() as (agent, _, _analyzer):

        async def contribute(
            value: int, person: str = "one", to: bytes = signed.digest()
        ) -> object:
            request = user_agent_pb2.ContributeRequest(task_digest=to, value=value, person=person)
            return await agent.Contribute(request, timeout=DEADLINE)

        for value in (100, 2**63, 2**64 - 1):
            status, message = await refusal(contribute(value))
            assert ("INVALID_ARGUMENT", "a value must lie between 0 and 99") == (status, message)
        forgotten = user_agent_pb2.ContributeRequest(task_digest=signed.digest(), person="one")
        status, message = await refusal(agent.Contribute(forgotten, timeout=DEADLINE))
        assert ("INVALID_ARGUMENT", "the call holds 0 values; it must hold 1") == (status, message)
        assert (await refusal(contribute(1, to=_UNKNOWN)))[0] == "NOT_FOUND"
        assert (await refusal(contribute(1, to=b"")))[0] == "INVALID_ARGUMENT"
        assert (await refusal(contribute(1, person="x" * 129)))[0] == "INVALID_ARGUMENT"
        await contribute(99)


@pytest.mark.own_services
async def test_a_task_by_another_signer_is_refused_by_shuffler_and_device(
    services: Services,
) -> None:
    """Whoever pinned another identity takes part in nothing."""
    signed = await services.publish()
    services.identity = "00" * 32
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(address)
    async with services.stubs() as (_, shuffler, _analyzer):
        fetch = shuffler_pb2.FetchTaskRequest(task_digest=signed.digest())
        status, message = await refusal(shuffler.FetchTask(fetch, timeout=DEADLINE))
        assert ("FAILED_PRECONDITION", True) == (status, "signature" in message)
        status, message = await refusal(contribute(services, signed))
        assert ("FAILED_PRECONDITION", True) == (status, "signature" in message)
