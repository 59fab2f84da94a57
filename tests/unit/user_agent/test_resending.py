import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from common.errors import PeerError, PeerRefusalError, WireError
from tests.support.devices import agent_of
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published
from user_agent.agent import Agent
from user_agent.budget import Budget, SubmissionState

_CASE = published()
_DIGEST = _CASE.signed.digest()
_PERSONS = ("a", "b", "c")


async def _owing(path: Path, shuffler: MemoryShuffler) -> tuple[Agent, Budget]:
    """Return an agent of three persons with unsent answers."""
    agent = agent_of(path, _CASE, shuffler, several_persons=True)
    shuffler.reachable = False
    for person in _PERSONS:
        with pytest.raises(PeerError):
            await agent.contribute(_DIGEST, 3, person)
    shuffler.reachable = True
    return agent, agent.budget


async def test_a_stale_refusal_does_not_undo_an_acknowledgement(tmp_path: Path) -> None:
    """Another person's answer arrives during a resend, which does not send it again."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, budget = await _owing(tmp_path, shuffler)
    taking = shuffler.submit

    async def meanwhile(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        shuffler.submit = taking  # type: ignore[method-assign]
        receipt = await taking(_DIGEST, envelope)
        await agent.contribute(_DIGEST, 3, "b")
        shuffler.closed = True
        return receipt

    shuffler.submit = meanwhile  # type: ignore[method-assign]
    await agent.resend_pending()

    found = [await budget.find(person, _DIGEST) for person in _PERSONS]
    assert [
        SubmissionState.ARRIVED,
        SubmissionState.ARRIVED,
        SubmissionState.REFUSED,
    ] == [saved.state for saved in found if saved]
    assert {"a", "b"} == {kept.person for kept in await budget.unchecked()}
    budget.close()


@pytest.mark.parametrize(
    "error", [WireError("a receipt has 65 bytes"), PeerRefusalError("INTERNAL", "none")]
)
async def test_one_answer_that_cannot_be_sent_holds_up_no_other(
    tmp_path: Path, error: Exception
) -> None:
    """For any error of this project."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, budget = await _owing(tmp_path, shuffler)
    taking = shuffler.submit

    async def first_fails(*_: object) -> bytes:
        shuffler.submit = taking  # type: ignore[method-assign]
        raise error

    shuffler.submit = first_fails  # type: ignore[assignment]
    await agent.resend_pending()

    assert len(_PERSONS) - 1 == len(shuffler.received)
    budget.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_calls_at_once_take_turns(tmp_path: Path, *, fails: bool) -> None:
    """Three calls for one answer: never two copies at a time, and one that arrives."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, budget = await _owing(tmp_path, shuffler)
    taking, under_way, most, tries = shuffler.submit, 0, 0, 0

    async def slowly(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        nonlocal under_way, most, tries
        under_way, tries = under_way + 1, tries + 1
        most, first = max(most, under_way), tries == 1
        await asyncio.sleep(0.02)
        under_way -= 1
        if fails and first:
            raise PeerError("away")
        return await taking(_DIGEST, envelope)

    shuffler.submit = slowly  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(_outcome(agent.contribute(_DIGEST, 3, "a"))) for _ in range(3)]
    await agent.resend_pending()

    assert most == 1
    assert sum(isinstance(call.result(), PeerError) for call in calls) == int(fails)
    assert len(set(shuffler.received)) == len(shuffler.received) == len(_PERSONS)
    budget.close()


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except PeerError as error:
        return error
