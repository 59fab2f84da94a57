import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from common.crypto.hpke import envelope_context, report_context
from common.errors import SettingsError
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
    """Publish a task; two rounds differ in keys and n_min."""
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
    """Let an agent answer, and return the opened report."""
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


def test_lasting_responses_need_a_secret(tmp_path: Path) -> None:
    """Without one, every answer would have fresh noise, which averages out."""
    with pytest.raises(SettingsError, match="need a lasting secret"):
        agent_of(tmp_path, _task(1), MemoryShuffler(_task(1).signed), secrets=None)


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
    Also after a restart and with other randomness, so that averaging gains nothing.

    The secret is fixed; over secrets two independent responses agree with probability below 1e-7.
    """
    one = await _report(tmp_path, _task(1), "Ada", seed=1)
    other = await _report(tmp_path, **{"case": _task(2), "person": "Ada", "seed": 2, **second})

    assert same is (one == other)
