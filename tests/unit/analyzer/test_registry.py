import asyncio
import dataclasses
import sqlite3
from contextlib import closing
from typing import Any, Final

import pytest

from shuffledp.analyzer.storage import task_table
from shuffledp.audit.harness.party_cores import SCHEDULE
from shuffledp.common.crypto.hpke import HpkePrivateKey, key_id
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.errors import SettingsError, ShuffleDpError, TaskError, UnusableBatchError
from shuffledp.common.messages.batch import TaskState
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.common.task.task import Task
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.keys import signed_key
from tests.support.tasks import draft
from tests.support.tokens import TOKENS


async def test_a_published_task_is_signed_and_found_after_a_restart(core: AnalyzerCore) -> None:
    """A restart keeps keys and bytes; the same draft again has a fresh nonce: another task."""
    keys, registry = core.keys, core.registry
    signed, other = await registry.publish(draft()), await registry.publish(draft())
    assert signed.digest() != other.digest()

    await core.restart()
    assert signed == await core.registry.get(signed.digest())
    core.keys.identity.public_identity().verify(signed)
    task = Task.from_bytes(signed.task_bytes)
    assert keys.reports.public_key().raw == task.analyzer_key


async def test_each_task_has_a_token_key_of_its_own(core: AnalyzerCore) -> None:
    """Nobody could get a second token; tasks without tokens do not matter."""
    for tokens in (None, TOKENS, None):
        await core.registry.publish(draft(tokens=tokens))
    with pytest.raises(TaskError, match="an earlier task has this token key"):
        await core.registry.publish(draft(tokens=TOKENS))


_KEY: Final = signed_key(HpkePrivateKey.generate().public_key())


async def test_a_population_is_asked_the_same_once_until_a_deadline(core: AnalyzerCore) -> None:
    """Two machines with the same series publish one task; tasks that differ are no repeats."""
    asked: dict[str, Any] = {"population": "staff", "budget_epsilon": 9.0}
    published = await asyncio.gather(
        *(
            core.registry.publish(draft(**asked, shuffler_key=key))
            for key in (_KEY, draft().shuffler_key)
        ),
        return_exceptions=True,
    )
    await core.registry.publish(draft(**asked, tokens=TOKENS))  # mends the one without
    await core.registry.publish(draft(**asked, local_epsilon=1.9))
    await core.registry.publish(draft(**asked, deadline=draft().deadline - 1))
    for _ in range(2):
        await core.registry.publish(draft())  # of no population: nobody is asked again

    [refusal] = [each for each in published if isinstance(each, BaseException)]
    assert isinstance(refusal, TaskError)
    assert "asks the population staff the same until the same deadline" in str(refusal)
    assert 6 == len(await core.registry.tasks(None))


@pytest.mark.parametrize(
    "changes",
    [
        {"deadline": 999_999_999},
        {"buckets": 12},
        {"delta": float("nan")},
        {"delta": 1e-20},
        {"assumed_honest_fraction": float("nan")},
        {"labels": ("only one",)},
        {"local_epsilon": float("inf"), "dummies_per_user": 0},
        {"protocol": "sh", "dummies_per_user": 0},
        {"protocol": "sh", "buckets": 0},
        {"protocol": "murs"},
        {"protocol": "puredump", "buckets": 0},
        {"protocol": "mixdump", "buckets": 0, "local_epsilon": float("inf")},
    ],
)
async def test_an_invalid_draft_is_not_published(
    core: AnalyzerCore, changes: dict[str, Any]
) -> None:
    """The status says that the operator must correct the draft."""
    with pytest.raises(ShuffleDpError) as caught:
        await core.registry.publish(draft(**changes))
    assert caught.value.status == "INVALID_ARGUMENT"


@pytest.mark.parametrize("content", [b"", b"\n", b"5e" * 31, b"5e" * 33, b"no token " * 8])
def test_a_damaged_operator_token_stops_the_start(content: bytes) -> None:
    """An empty one would match anything. An intact one is hidden in repr."""
    with pytest.raises(SettingsError, match="must hold 64 hexadecimal digits"):
        OperatorToken(content)
    assert "5e5e" not in repr(OperatorToken(b"5e" * 32))


def _change(analyzer: AnalyzerCore, statement: str) -> None:
    """Change the analyzer's file as another version might have left it."""
    with closing(sqlite3.connect(analyzer.path / "analyzer.sqlite")) as connection, connection:
        connection.execute(statement)


async def test_a_task_without_a_summary_is_not_listed(analyzer: AnalyzerCore) -> None:
    """The others are listed, and a description of the task is refused."""
    _change(analyzer, "DELETE FROM task_lines")
    unlisted, listed = analyzer.signed.digest(), (await analyzer.publish()).digest()

    assert [listed] == [summary.task_digest for summary in await analyzer.registry.tasks(None)]
    with pytest.raises(TaskError, match=r"cannot describe its task [0-9a-f]{12}: "):
        await analyzer.registry.describe(unlisted)


async def test_listing_parses_no_task(analyzer: AnalyzerCore) -> None:
    """The summary is stored beside the task's bytes."""
    _change(analyzer, "UPDATE tasks SET task = x'00'")
    [summary] = await analyzer.registry.tasks(None)
    task = analyzer.task

    assert analyzer.signed.digest() == summary.task_digest
    assert TaskState.OPEN is summary.state
    for field in ("protocol", "domain_size", "population", "n_min", "target_size", "deadline"):
        assert getattr(task, field) == getattr(summary, field)


_USERS = 50


async def _rotate(core: AnalyzerCore, days: float) -> None:
    """Let days pass, and rotate as the running service does."""
    for _ in range(round(days)):
        core.clock.seconds += DAY
        needed = await core.registry.needed_keys(SCHEDULE.retention)
        core.keys.reports.rotate(core.clock.now(), needed)


async def test_a_batch_sealed_to_an_expired_key_is_released(core: AnalyzerCore) -> None:
    """A new process releases it half a year later; then the key is destroyed."""
    old = Task.from_bytes((await core.publish()).task_bytes).analyzer_key
    signed, sealed = core.signed, core.sealed(_USERS)
    await _rotate(core, 183)
    assert old != core.keys.reports.public_key().raw
    seconds = core.clock.seconds
    await core.restart()
    core.clock.seconds = seconds

    await core.deliver_parts(core.manifest(_USERS, signed=signed), sealed)
    await core.settle()
    assert _USERS == (await core.releases.result(signed.digest())).n_users
    await _rotate(core, 1)
    assert "destroyed" in {entry.state.value for entry in core.keys.reports.ring.entries}


async def test_a_batch_whose_key_is_destroyed_is_unusable(core: AnalyzerCore) -> None:
    """It arrives a month after the deadline: nothing is opened or charged, and the reason kept."""
    deadline = int(core.clock.now() + 2 * DAY)
    signed = await core.publish(deadline=deadline)
    sealed, manifest = core.sealed(_USERS), core.manifest(_USERS)
    await _rotate(core, 125)
    await core.deliver_parts(manifest, sealed)
    await core.settle()

    with pytest.raises(UnusableBatchError, match=r"analyzer_key, .* expired and was destroyed"):
        await core.releases.result(signed.digest())
    assert 0 == core.executor.parts["count"]
    assert [] == await core.store.ledger(0)
    assert b"".join(sealed[:_USERS]) == core.blocks.open(BATCH).get("arrived/0")


async def test_a_key_is_needed_while_a_batch_is_staged_or_expected(core: AnalyzerCore) -> None:
    """The key is needed for a time after the deadline; a staged batch needs it without limit."""
    deadline = int(core.clock.now() + 2 * DAY)
    signed = await core.publish(deadline=deadline)
    task = Task.from_bytes(signed.task_bytes)
    key = key_id(task.suite, task.analyzer_key)

    async def needed() -> set[bytes]:
        found = await core.registry.needed_keys(SCHEDULE.retention)
        assert found is not None
        return set(found)

    assert {key} == await needed()
    core.clock.seconds = deadline + SCHEDULE.retention - 1
    assert {key} == await needed()
    core.clock.seconds = deadline + SCHEDULE.retention
    assert set() == await needed()

    await core.staging.begin(core.manifest(_USERS), 2)
    assert set() == await needed()
    await core.stage(core.manifest(_USERS))
    assert {key} == await needed()
    await core.releases.resume()
    await core.settle()
    assert set() == await needed()


async def test_no_key_is_destroyed_while_a_task_is_unreadable(core: AnalyzerCore) -> None:
    """The task's batch may need any of them; new keys are still created."""
    signed = await core.publish(deadline=int(core.clock.now() + 2 * DAY))
    task = Task.from_bytes(signed.task_bytes)
    unreadable = core.keys.identity.sign(b"of a later version")
    later = dataclasses.replace(task, deadline=int(core.clock.now() + 200 * DAY))
    await core.store.run(task_table.add, unreadable, later)
    await _rotate(core, 125)

    states = {entry.state.value for entry in core.keys.reports.ring.entries}
    assert {"active", "expired"} <= states
    assert "destroyed" not in states
    core.keys.reports.private_key(task.suite, task.analyzer_key, whose="analyzer_key")
