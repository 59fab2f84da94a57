import asyncio
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import BudgetError, DamagedStorageError
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.contribution import PreparedSubmission
from shuffledp.user_agent.device_store import DeviceStore
from shuffledp.user_agent.policy import Claim, check_totals
from tests.support.policies import generous
from tests.support.tasks import published

_ANSWER = Claim(local_epsilon=2.0, central_epsilon=0.25, delta=1e-6, coalition_epsilon=2.0)
_POLICY = replace(
    generous(SigningIdentity.generate().public_identity()),
    total_local_epsilon_cap=5.0,
    total_central_epsilon_cap=1.0,
)
_TASK = published().task
_CHECK = partial(check_totals, _POLICY)


def _task(number: int) -> TaskDigest:
    return TaskDigest(bytes([number]) * 32)


def _envelope(content: bytes = b"envelope") -> Callable[[], PreparedSubmission]:
    return lambda: PreparedSubmission(envelope=content, leaves=(bytes(32),), task=_TASK)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    """Yield the store of a new device."""
    made = DeviceStore(tmp_path / "budget.sqlite")
    yield made
    made.close()


async def test_answers_at_the_same_time_cannot_both_pass_a_cap(
    store: DeviceStore, tmp_path: Path
) -> None:
    """There is room for two of five; nothing is prepared for the others, even after a restart."""
    prepared = list[bytes]()

    def prepare() -> PreparedSubmission:
        prepared.append(b"")
        return _envelope()()

    outcomes = await asyncio.gather(
        *(store.charge("", _task(n), _ANSWER, _CHECK, prepare) for n in range(5)),
        return_exceptions=True,
    )

    assert 3 == sum(isinstance(outcome, BudgetError) for outcome in outcomes)
    assert 2 == len(prepared) == len(await store.pending())
    again = DeviceStore(tmp_path / "budget.sqlite")
    with pytest.raises(BudgetError, match="4 is spent on 2 tasks, and this one would add 2"):
        await again.charge("", _task(9), _ANSWER, _CHECK, prepare)
    assert {_ANSWER} == {saved.claim for saved in await again.pending()}
    assert 2 == len(prepared)
    again.close()


async def test_every_earlier_answer_counts(store: DeviceStore) -> None:
    """A cap with room for 100 answers refuses the 101st."""
    small = Claim(local_epsilon=0.125, central_epsilon=1e-3, delta=0.0, coalition_epsilon=0.125)
    check = partial(check_totals, dataclasses.replace(_POLICY, total_local_epsilon_cap=12.5))
    for number in range(100):
        await store.charge("", _task(number), small, check, _envelope())
    with pytest.raises(BudgetError, match=r"12\.5 is spent on 100 tasks"):
        await store.charge("", _task(100), small, check, _envelope())


async def test_an_answered_task_costs_nothing_more(store: DeviceStore) -> None:
    """The same bytes are returned, even over a cap."""
    first, repeated = await store.charge("", _task(1), _ANSWER, _CHECK, _envelope(b"one"))
    assert not repeated
    await store.charge("", _task(2), _ANSWER, _CHECK, _envelope())
    again, repeated = await store.charge("", _task(1), _ANSWER, _CHECK, _envelope(b"other"))

    assert (first, True) == (again, repeated)
    assert b"one" == again.envelope


async def test_every_person_has_a_budget_of_their_own(store: DeviceStore) -> None:
    """Refused submissions count too."""
    for person in ("one", "two"):
        for number in range(2):
            saved, _ = await store.charge(person, _task(number), _ANSWER, _CHECK, _envelope())
            await store.mark_refused(saved)
        with pytest.raises(BudgetError):
            await store.charge(person, _task(3), _ANSWER, _CHECK, _envelope())


def test_a_file_without_central_costs_is_refused(tmp_path: Path) -> None:
    """Such a file of an early snapshot is never taken for an unspent budget."""
    path = tmp_path / "budget.sqlite"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "CREATE TABLE submissions (person TEXT NOT NULL, task_digest BLOB NOT NULL, "
            "envelope BLOB NOT NULL, local_epsilon REAL NOT NULL, state TEXT NOT NULL, "
            "PRIMARY KEY (person, task_digest)) WITHOUT ROWID"
        )
    connection.close()
    with pytest.raises(DamagedStorageError, match="table submissions has no column"):
        DeviceStore(path)


_LASTING = Claim(
    local_epsilon=1.0,
    central_epsilon=1.0,
    delta=1e-6,
    coalition_epsilon=1.0,
    scope_hash=b"state",
    text_hash=b"hash of Ohio",
    permanent_epsilon=2.5,
)


async def test_the_same_answers_to_a_question_cost_at_most_its_permanent_epsilon(
    store: DeviceStore, tmp_path: Path
) -> None:
    """A changed text makes all of them count by their sum, even after a restart."""
    policy = replace(_POLICY, total_local_epsilon_cap=3.0, total_central_epsilon_cap=3.0)
    check = partial(check_totals, policy)
    for number in range(6):
        await store.charge("", _task(number), _LASTING, check, _envelope())
    await store.charge("other", _task(0), _LASTING, check, _envelope())
    other = replace(_LASTING, scope_hash=b"city")
    with pytest.raises(BudgetError, match=r"2\.5, if each person's text stays the same; their sum"):
        await store.charge("", _task(7), other, check, _envelope())
    again = DeviceStore(tmp_path / "budget.sqlite")
    changed = replace(_LASTING, text_hash=b"hash of Utah")
    with pytest.raises(BudgetError, match=r"cost epsilon 7, their sum, since the text has changed"):
        await again.charge("", _task(8), changed, check, _envelope())
    await again.charge("other", _task(8), changed, check, _envelope())
    await again.charge("", _task(8), _LASTING, check, _envelope())
    again.close()
