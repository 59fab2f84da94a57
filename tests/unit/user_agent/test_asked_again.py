"""Asked a named question twice, a device answers one population with the same noise."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from common.crypto.hpke import envelope_context, report_context
from common.messages.submission import unpack
from common.task.draft import TextDraft
from tests.support.devices import agent_of
from tests.support.kind_tasks import kind_draft_fields
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask, published
from user_agent.credentials import PersonalSecrets

_ONE_TIME: Final = TextDraft(bits=64, cohorts=8, unset=0.0, set=1.0)
"""A report is the permanent response itself: 64 bits, of which half are coins."""


@cache
def _task(round_number: int, population: str = "staff", question: str = "state") -> PublishedTask:
    """Publish a task; those of two rounds differ in their keys and in n_min."""
    return published(
        **kind_draft_fields(
            "rappor",
            texts=dataclasses.replace(_ONE_TIME, question=question),
            population=population,
            n_min=100 + round_number,
            target_size=200,
        )
    )


async def _report(
    path: Path, case: PublishedTask, person: str, text: str = "Ohio", *, seed: int = 1
) -> bytes:
    """Let an agent answer, open what it sent with both keys, and give the report."""
    shuffler, digest = MemoryShuffler(case.signed), case.signed.digest()
    path.mkdir(exist_ok=True)
    agent = agent_of(
        path,
        case,
        shuffler,
        seed=seed,
        several_persons=True,
        secrets=PersonalSecrets(b"s" * 32),
    )
    await agent.contribute(digest, text, person)
    agent.budget.close()
    [envelope] = shuffler.received
    content = unpack(case.shuffler_key.open(envelope, envelope_context(digest)), case.task)
    return case.analyzer_key.open(content.sealed_reports, report_context(digest))


async def _pair(path: Path, first: dict[str, Any], second: dict[str, Any]) -> tuple[bytes, bytes]:
    """Give two reports, each drawn with randomness of its own."""
    return (
        await _report(path, **{"case": _task(1), "person": "Ada", "seed": 1, **first}),
        await _report(path, **{"case": _task(2), "person": "Ada", "seed": 2, **second}),
    )


@pytest.mark.parametrize(
    ("second", "same"),
    [
        ({}, True),
        ({"person": "Bo"}, False),
        ({"case": _task(2, "guests")}, False),
        ({"text": "Utah"}, False),
        ({"case": _task(2, question="place of birth")}, False),
    ],
    ids=["nothing differs", "person", "population", "text", "question"],
)
async def test_responses_are_the_same_for_one_person_question_and_text(
    tmp_path: Path, second: dict[str, Any], *, same: bool
) -> None:
    """
    In another task, after a restart, with other randomness: averaging gains nothing.

    Secrets are fixed, so that this does not vary; over secrets 64 bits, of which half are coins,
    are equal with probability below 1e-7.
    """
    one, other = await _pair(tmp_path, {}, second)

    assert same is (one == other)


async def test_tasks_without_a_question_share_no_noise(tmp_path: Path) -> None:
    """
    Nobody is asked again, by the operator's word; if somebody is, it is with noise of its own.

    By chance over secrets as above; the digests of tasks vary with their keys.
    """
    first, second = await _pair(
        tmp_path, {"case": _task(1, question="")}, {"case": _task(2, question="")}
    )

    assert first != second
