"""The issuer's cap of tokens per person, population and period."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import pytest

from shuffledp.common.crypto.privacy_tokens import TokenKey
from shuffledp.common.errors import BudgetError, SettingsError
from shuffledp.common.runtime.database import Database, Schema
from shuffledp.issuer.issuance_store import _TABLE, Issued, Wanted
from shuffledp.issuer.token_keys import HeldKey
from tests.support.faults import Crash, Faults
from tests.support.issuers import DAY, IssuerCore, pending

T = TypeVar("T")

_PERIOD_END = 1_000_512_000
"""Of the 30 days in which the test's clock starts: a multiple of their seconds."""


@pytest.fixture
def capped(tmp_path: Path) -> Iterator[IssuerCore]:
    """A started issuer that gives a person two tokens of a population in 30 days."""
    started = IssuerCore(tmp_path, cap=(2, 30))
    started.start()
    yield started
    started.stop()


def _restart(core: IssuerCore) -> None:
    core.store.close()
    core.start()


async def test_a_person_gets_the_cap_of_each_population_in_each_period(capped: IssuerCore) -> None:
    """The next is refused with the public numbers; repeats are free, also after a restart."""
    keys = [await capped.create_key("staff", 40) for _ in range(3)]
    other = await capped.create_key("", 40)
    first = await capped.issue(pending(keys[0], 1))
    await capped.issue(pending(keys[1], 2))
    sentence = "for this population, 2 in 30 days; .* begins at 2001-09-15 00:00:00 UTC"
    for _ in range(2):
        with pytest.raises(BudgetError, match=sentence) as refused:
            await capped.issue(pending(keys[2], 3))
        assert "RESOURCE_EXHAUSTED" == refused.value.status
        assert first == await capped.issue(pending(keys[0], 1))
        _restart(capped)
        await capped.issuance.check_complete()
    await capped.issue(pending(keys[2], 4), "Bo Li")
    await capped.issue(pending(other, 5))

    assert {"issued": 4, "repeated": 2, "cap": 2} == capped.counts
    capped.clock.seconds = _PERIOD_END - 1
    with pytest.raises(BudgetError):
        await capped.issue(pending(keys[2], 3))
    capped.clock.seconds += 1
    assert await capped.issue(pending(keys[2], 3))


async def test_of_concurrent_requests_no_more_than_the_cap_are_charged(capped: IssuerCore) -> None:
    """100 tasks at once give two tokens; 100 requests for one token are charged once."""
    now = capped.clock.now()

    def wanted(key: int, person: str) -> Wanted:
        charge = capped.issuance.cap.charge("staff", person, now)
        tag = person.encode()
        return Wanted(key_id=bytes([key]), person=tag, request=b"r", sign=bytes, charge=charge)

    async def settle(key: int, person: str) -> Issued | str:
        [[settled]] = await capped.store.settle([[wanted(key, person)]], _sign)
        return settled

    tried = await asyncio.gather(*(settle(key, "Ada") for key in range(100)))
    assert 2 == sum(isinstance(one, Issued) for one in tried)
    key = await capped.create_key("staff")
    repeated = [capped.issue(pending(key, 1), "Bo Li") for _ in range(100)]
    assert 1 == len(set(await asyncio.gather(*repeated)))
    assert [1, 2] == sorted(row[2] for row in _counts(capped))


def _sign(wanted: Sequence[Wanted]) -> list[bytes]:
    return [each.sign() for each in wanted]


async def test_a_bulk_call_over_the_cap_signs_the_rest(capped: IssuerCore) -> None:
    """As for a conflict: without the refused request, the call is answered."""
    keys = [await capped.create_key() for _ in range(3)]
    for key in keys[:2]:
        await capped.issue(pending(key, 1))
    ada, bo = (pending(keys[2], 1), "Ada"), (pending(keys[2], 2), "Bo Li")
    with pytest.raises(BudgetError):
        await capped.issue_bulk(ada, bo)

    assert 1 == len(await capped.issue_bulk(bo))
    assert {"issued": 2, "cap": 1, "repeated": 1} == capped.counts


async def test_counts_name_nobody_and_are_erased_after_the_period(capped: IssuerCore) -> None:
    """Two populations of a person are unrelated; key and counts go ten minutes after the end."""
    for number, population in enumerate(("staff", "guests")):
        await capped.issue(pending(await capped.create_key(population), number))
    rows, wal = _counts(capped), (capped.path / "issuer.sqlite-wal").read_bytes()
    assert {_PERIOD_END} == {end for end, _, _ in rows}
    assert 2 == len({tag for _, tag, _ in rows})
    for planted in (b"Ada", b"staff", b"guests", sha256(b"staff\0Ada").digest()):
        assert planted not in wal
    capped.clock.seconds = _PERIOD_END + 599
    await capped.issuance.destroy_ended()
    assert [f"period-{_PERIOD_END}.key"] == capped.keys._state.names("period-*")
    capped.clock.seconds += 1
    await capped.issuance.destroy_ended()

    assert ([], []) == (_counts(capped), capped.keys._state.names("period-*"))


async def test_a_period_whose_key_is_missing_stops_the_start(capped: IssuerCore) -> None:
    """Until it is over: under another key everybody would be counted from 0 again."""
    await capped.issue(pending(await capped.create_key(), 1))
    (capped.path / "issuer" / f"period-{_PERIOD_END}.key").unlink()
    _restart(capped)
    with pytest.raises(SettingsError, match=rf"period-{_PERIOD_END}\.key is missing"):
        await capped.issuance.check_complete()
    capped.clock.seconds = _PERIOD_END + 600
    await capped.issuance.check_complete()
    await capped.issuance.destroy_ended()

    assert [] == _counts(capped)


async def test_earlier_files_are_read(tmp_path: Path) -> None:
    """A database without counts is upgraded; a key without a population belongs to none."""
    old = HeldKey.generate(2**33, 0)
    content = old.end.to_bytes(8) + old.person_key + old.private
    Database(tmp_path / "issuer.sqlite", Schema(steps=(_TABLE,))).close()
    assert old == HeldKey.from_bytes(content)
    assert content == old.to_bytes()
    core = IssuerCore(tmp_path, cap=(1, 1))
    core.start()
    await core.issue(pending(await core.create_key("staff"), 1))
    _restart(core)
    [key_id] = core.keys.held()

    assert "staff" == core.keys.find(bytes.fromhex(key_id), core.clock.now()).population
    assert [1] == [row[2] for row in _counts(core)]
    core.stop()


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
async def test_no_crash_gives_a_person_more_than_the_cap(tmp_path: Path, step: int) -> None:
    """At each boundary of two tasks and a period's end: one token, charged once."""
    for number in range(0, 60, step):
        faults = await _tried_with_a_crash(tmp_path / str(number), number)
        if not faults.crashes:
            break

    assert 15 <= number < 56


async def _tried_with_a_crash(folder: Path, number: int) -> Faults:
    folder.mkdir()
    core = IssuerCore(folder, Faults(countdown=number), cap=(1, 1))
    core.start()

    async def until_done(work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except Crash:
                core.stop()
                core.start()
                core.faults.suspended, before = True, core.faults.suspended
                await core.issuance.check_complete()
                core.faults.suspended = before

    keys: list[TokenKey] = [await until_done(lambda: core.create_key("staff", 9)) for _ in range(2)]
    first, second = pending(keys[0], 1), pending(keys[1], 2)
    given = {await until_done(lambda: core.issue(first)) for _ in range(2)}
    with pytest.raises(BudgetError):
        await until_done(lambda: core.issue(second))
    assert [1] == [row[2] for row in _counts(core)]
    core.clock.seconds += DAY + 600
    await until_done(lambda: core.issuance.destroy_ended())  # noqa: PLW0108  # a new one
    assert [] == _counts(core)
    assert await until_done(lambda: core.issue(second))
    core.stop()
    assert 1 == len(given)
    return core.faults


def _counts(core: IssuerCore) -> list[tuple[int, bytes, int]]:
    with closing(sqlite3.connect(core.path / "issuer.sqlite")) as connection:
        return connection.execute("SELECT * FROM counted").fetchall()
