"""Answers that could not be sent at first: sent again, each on its own, and never unlearned."""

from pathlib import Path

import numpy as np
import pytest

from common.errors import PeerError, PeerRefusalError, WireError
from tests.support.clocks import ManualClock
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published
from user_agent.agent import Agent
from user_agent.budget import Budget, SubmissionState

_CASE = published()
_DIGEST = _CASE.signed.digest()
_PERSONS = ("a", "b", "c")


async def _owing(path: Path, shuffler: MemoryShuffler) -> tuple[Agent, Budget]:
    """An agent of three persons, none of whose answers could be sent."""
    budget = Budget(path / "budget.sqlite")
    agent = Agent(
        shuffler=shuffler,
        budget=budget,
        policy=generous(_CASE.identity.public_identity(), local_epsilon_cap=4.0),
        several_persons=True,
        clock=ManualClock(),
        rng=np.random.default_rng(1),
    )
    shuffler.reachable = False
    for person in _PERSONS:
        with pytest.raises(PeerError):
            await agent.contribute(_DIGEST, 3, person)
    shuffler.reachable = True
    return agent, budget


async def test_a_stale_refusal_does_not_undo_an_acknowledgement(tmp_path: Path) -> None:
    """
    While one person's answer is sent again, another calls and is acknowledged; then the batch is
    delivered, and what was to be sent again for the other comes too late.
    """
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
    """Whatever this project's error is."""
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


async def test_what_is_on_its_way_is_not_sent_a_second_time(tmp_path: Path) -> None:
    """The first call may yet be answered; who watches the network would see two."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, budget = await _owing(tmp_path, shuffler)
    taking = shuffler.submit

    async def slowly(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        shuffler.submit = taking  # type: ignore[method-assign]
        await agent.resend_pending()
        return await taking(_DIGEST, envelope)

    shuffler.submit = slowly  # type: ignore[method-assign]
    await agent.contribute(_DIGEST, 3, "a")

    assert len(set(shuffler.received)) == len(shuffler.received) == len(_PERSONS)
    budget.close()
