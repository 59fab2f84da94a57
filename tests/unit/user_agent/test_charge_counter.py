"""A store that was restored from a backup, and its counter of charges."""

import math
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.errors import BudgetError, PeerError, PolicyError, SettingsError
from shuffledp.user_agent.core import Agent
from shuffledp.user_agent.device_store import DeviceStore, SubmissionState
from shuffledp.user_agent.policy import Claim
from tests.support.chains import RELAY, chain
from tests.support.devices import agent_of
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask, published

_CASES: Final = [published(local_epsilon=1.0, n_min=10 + number) for number in range(4)]
_CAPS: Final = Claim(local_epsilon=2.5, central_epsilon=20.0, delta=1e-4, coalition_epsilon=2.5)


def _agent(path: Path, case: PublishedTask, **changes: Any) -> Agent:
    """Return an agent whose cap has room for two answers."""
    policy = replace(
        generous(case.identity.public_identity()),
        total_local_epsilon_cap=_CAPS.local_epsilon,
        total_central_epsilon_cap=_CAPS.central_epsilon,
        total_delta_cap=_CAPS.delta,
    )
    return agent_of(path, case, MemoryShuffler(case.signed), **{"policy": policy} | changes)


async def _started(path: Path, *, confirmed: bool = False, caps: Claim = _CAPS) -> None:
    """Start a device, and stop it."""
    store = DeviceStore(path / "budget.sqlite")
    try:
        await store.check_counter(caps, np.random.default_rng(0), confirmed=confirmed)
    finally:
        store.close()


async def _answer(path: Path, case: PublishedTask) -> int:
    """Start a device, let it answer a task, and stop it; return how much the shuffler received."""
    await _started(path)
    agent = _agent(path, case)
    try:
        await agent.contribute(case.signed.digest(), 0, "")
    finally:
        agent.store.close()
    assert isinstance(agent.shuffler, MemoryShuffler)
    return len(agent.shuffler.received)


async def _states(path: Path) -> list[SubmissionState]:
    store = DeviceStore(path / "budget.sqlite")
    found = [await store.find("", case.signed.digest()) for case in _CASES]
    store.close()
    return [saved.state for saved in found if saved is not None]


def _back_up(path: Path, copy: Path) -> None:
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("charges.sqlite*"))


def _restore(path: Path, copy: Path) -> None:
    """Put the backup in place of the store; the counter stays."""
    for old in path.glob("budget.sqlite*"):
        old.unlink()
    shutil.copytree(copy, path, dirs_exist_ok=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The device's folder."""
    made = tmp_path / "device"
    made.mkdir()
    return made


async def test_a_restored_store_counts_what_was_charged_since_the_backup(
    path: Path, tmp_path: Path
) -> None:
    """It refuses to start until the person confirms; then no third task passes a cap for two."""
    await _answer(path, _CASES[0])
    _back_up(path, tmp_path / "copy")
    await _answer(path, _CASES[1])
    _restore(path, tmp_path / "copy")
    with pytest.raises(SettingsError, match="keys confirm-restore"):
        await _started(path)
    assert [SubmissionState.ARRIVED] == await _states(path)
    await _started(path, confirmed=True)

    with pytest.raises(BudgetError, match="2 is spent on 2 tasks, and this one would add 1"):
        await _answer(path, _CASES[2])
    assert [SubmissionState.ARRIVED, SubmissionState.LOST] == await _states(path)


async def test_a_restored_device_answers_no_task_twice(path: Path, tmp_path: Path) -> None:
    """A second answer would have other noise."""
    await _started(path)
    _back_up(path, tmp_path / "copy")
    await _answer(path, _CASES[0])
    _restore(path, tmp_path / "copy")
    await _started(path, confirmed=True)

    with pytest.raises(PolicyError, match="it answers no task twice"):
        await _answer(path, _CASES[0])
    assert 1 == await _answer(path, _CASES[1])


@pytest.mark.parametrize("also", [lambda _: None, lambda path: (path / "charges.sqlite").touch()])
async def test_without_its_counter_a_store_has_spent_every_cap(
    path: Path, also: Callable[[Path], object]
) -> None:
    """Nobody knows what was charged: a missing file is not an empty one."""
    await _answer(path, _CASES[0])
    for old in path.glob("charges.sqlite*"):
        old.unlink()
    also(path)
    with pytest.raises(SettingsError, match="every cap as spent wholly"):
        await _started(path)
    await _started(path, confirmed=True)

    with pytest.raises(BudgetError, match=r"3\.5 is spent on 2 tasks"):
        await _answer(path, _CASES[1])


async def test_charges_of_an_earlier_version_count_with_their_local_epsilon(
    path: Path, tmp_path: Path
) -> None:
    """They were of tasks with one shuffler. A new one counts its coalition ε, which comes back."""
    await _started(path)
    _back_up(path, tmp_path / "copy")
    await _answer(path, _CASES[0])
    with closing(sqlite3.connect(path / "charges.sqlite")) as counter, counter:
        for column in ("coalition_epsilon", "chained"):
            counter.execute(f"ALTER TABLE charges DROP COLUMN {column}")
        counter.execute("UPDATE schema_version SET version = 1, readable_from = 1")
    case = published(**chain())
    policy = generous(case.identity.public_identity(), relay_identity=RELAY.public_identity())
    agent = _agent(path, case, policy=policy)
    await agent.contribute(case.signed.digest(), 0, "")
    agent.store.close()
    _restore(path, tmp_path / "copy")
    await _started(path, confirmed=True)

    store = DeviceStore(path / "budget.sqlite")
    for each, coalition in ((_CASES[0], 1.0), (case, case.task.coalition_epsilon)):
        saved = await store.find("", each.signed.digest())
        assert saved is not None
        assert coalition == saved.claim.coalition_epsilon
        assert (each is case) == saved.claim.chained
    store.close()


async def test_charges_without_the_number_of_shufflers_are_told_by_their_epsilon(
    path: Path,
) -> None:
    """All that a lost counter had is of no task, whatever the caps were."""
    await _started(path)
    charges = (("", b"\1", 0.5), ("", b"\2", math.inf), ("", b"", 0.5))
    with closing(sqlite3.connect(path / "charges.sqlite")) as counter, counter:
        counter.execute("ALTER TABLE charges DROP COLUMN chained")
        row = "INSERT INTO charges VALUES (?, ?, x'', 9e999, 1, 0, ?)"
        counter.executemany(row, charges)
        counter.execute("UPDATE schema_version SET version = 2, readable_from = 2")
    await _started(path, confirmed=True)

    with closing(sqlite3.connect(path / "budget.sqlite")) as store:
        found = "SELECT chained FROM submissions ORDER BY task_digest"
        assert [0, 1, 0] == [row[0] for row in store.execute(found)]


async def test_without_a_counter_an_infinite_cap_is_spent_if_it_is_lowered(path: Path) -> None:
    """The charge is of tasks with one shuffler too, though its coalition ε is below its local."""
    await _answer(path, _CASES[0])
    for old in path.glob("charges.sqlite*"):
        old.unlink()
    await _started(path, confirmed=True, caps=replace(_CAPS, local_epsilon=math.inf))

    with pytest.raises(BudgetError, match=r"total_local_epsilon_cap is 2\.5; inf is spent"):
        await _answer(path, _CASES[1])


async def test_a_counter_of_another_device_is_a_missing_one(path: Path, tmp_path: Path) -> None:
    """Its charges say nothing about this store's."""
    other = tmp_path / "other"
    other.mkdir()
    await _answer(path, _CASES[0])
    await _answer(other, _CASES[1])
    shutil.copy(other / "charges.sqlite", path / "charges.sqlite")

    with pytest.raises(SettingsError, match="every cap as spent wholly"):
        await _started(path)


async def test_a_lost_store_counts_what_the_counter_has(path: Path) -> None:
    """The counter alone is enough."""
    await _answer(path, _CASES[0])
    await _answer(path, _CASES[1])
    for old in path.glob("budget.sqlite*"):
        old.unlink()
    await _started(path, confirmed=True)

    with pytest.raises(BudgetError, match="2 is spent on 2 tasks"):
        await _answer(path, _CASES[2])


async def test_the_confirmed_charges_survive_another_restore(path: Path, tmp_path: Path) -> None:
    """The counter keeps them, those that are unknown too."""
    await _started(path)
    _back_up(path, tmp_path / "copy")
    for old in path.glob("charges.sqlite*"):
        old.unlink()
    await _started(path, confirmed=True)
    _restore(path, tmp_path / "copy")
    with pytest.raises(SettingsError):
        await _started(path)
    await _started(path, confirmed=True)

    with pytest.raises(BudgetError, match=r"2\.5 is spent on 1 task"):
        await _answer(path, _CASES[0])


@pytest.mark.parametrize("factors", [(1.0, 0.4), (0.4, 1.0)])
async def test_a_counter_that_is_lost_twice_keeps_the_larger_charge(
    path: Path, tmp_path: Path, factors: tuple[float, float]
) -> None:
    """Whether the caps were raised or lowered in between, here and after another restore."""
    await _started(path)
    _back_up(path, tmp_path / "copy")
    for factor in factors:
        for old in path.glob("charges.sqlite*"):
            old.unlink()
        caps = replace(_CAPS, local_epsilon=factor * _CAPS.local_epsilon)
        await _started(path, confirmed=True, caps=caps)
    for _ in range(2):
        with pytest.raises(BudgetError, match=r"2\.5 is spent on 1 task"):
            await _answer(path, _CASES[0])
        _restore(path, tmp_path / "copy")
        await _started(path, confirmed=True)


async def test_a_device_of_an_earlier_version_gets_a_counter(path: Path) -> None:
    """Its charges are counted at the first start, without a question."""
    agent = _agent(path, _CASES[0])
    await agent.contribute(_CASES[0].signed.digest(), 0, "")
    agent.store.close()
    for old in path.glob("charges.sqlite*"):
        old.unlink()

    assert 1 == await _answer(path, _CASES[1])
    with pytest.raises(BudgetError, match="2 is spent on 2 tasks"):
        await _answer(path, _CASES[2])


class _CrashError(Exception):
    """The device lost power."""


class _CrashingStore(DeviceStore):
    """A store whose device crashes before or after an answer is counted."""

    def __init__(self, path: Path, crash: str) -> None:
        super().__init__(path)
        self.crash = crash

    async def count(self, submission: Any) -> None:
        """Count, and crash."""
        if self.crash == "before":
            raise _CrashError
        await super().count(submission)
        raise _CrashError


@pytest.mark.parametrize("crash", ["before", "after"])
async def test_a_crash_between_the_files_neither_locks_out_nor_overspends(
    path: Path, tmp_path: Path, crash: str
) -> None:
    """
    The answer is saved, then counted, then sent. Every crash leaves a device that starts.

    A backup restored after the crash has lost a charge of which nothing was sent, or it is noticed.
    """
    await _started(path)
    _back_up(path, tmp_path / "copy")
    case, store = _CASES[0], _CrashingStore(path / "budget.sqlite", crash)
    agent = _agent(path, case, store=store)
    with pytest.raises(_CrashError):
        await agent.contribute(case.signed.digest(), 0, "")
    store.close()
    assert isinstance(agent.shuffler, MemoryShuffler)
    assert [] == agent.shuffler.received
    crashed = tmp_path / "crashed"
    shutil.copytree(path, crashed)

    assert 1 == await _answer(crashed, case)
    _restore(path, tmp_path / "copy")
    if crash == "after":
        with pytest.raises(SettingsError):
            await _started(path)
        await _started(path, confirmed=True)
    assert (crash == "before") == (1 == await _attempt(_answer(path, case)))


async def _attempt(answering: Awaitable[int]) -> int:
    try:
        return await answering
    except PolicyError:
        return 0


async def test_a_crash_while_a_restore_is_confirmed_leaves_it_to_be_repeated(path: Path) -> None:
    """The store is written first; the second time nothing is charged twice."""
    await _answer(path, _CASES[0])
    for old in path.glob("charges.sqlite*"):
        old.unlink()
    store = DeviceStore(path / "budget.sqlite")
    await store.check_counter(_CAPS, np.random.default_rng(0), confirmed=True)
    store.close()
    for old in path.glob("charges.sqlite*"):  # it was never written
        old.unlink()
    await _started(path, confirmed=True)

    with pytest.raises(BudgetError, match=r"3\.5 is spent on 2 tasks"):
        await _answer(path, _CASES[1])


async def test_an_answer_that_cannot_be_sent_is_counted_already(path: Path, tmp_path: Path) -> None:
    """Its retries may have arrived."""
    await _started(path)
    _back_up(path, tmp_path / "copy")
    case = _CASES[0]
    agent = _agent(path, case)
    assert isinstance(agent.shuffler, MemoryShuffler)
    agent.shuffler.reachable = False
    with pytest.raises(PeerError):
        await agent.contribute(case.signed.digest(), 0, "")
    agent.store.close()
    _restore(path, tmp_path / "copy")

    with pytest.raises(SettingsError):
        await _started(path)
