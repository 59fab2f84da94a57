import dataclasses
import json
import math
from typing import Final

import pytest

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, KeyId
from common.crypto.key_ring import (
    DAY,
    KeyEntry,
    KeyRing,
    KeyState,
    Schedule,
)
from common.crypto.suites import DEFAULT_SUITE, SUITES
from common.errors import UnknownKeyError, WireError
from tests.support.keys import SCHEDULE

_SUITES: Final = (DEFAULT_SUITE,)


def _make(suite: str) -> HpkePublicKey:
    return HpkePrivateKey.generate(suite).public_key()


def _rotated(
    ring: KeyRing,
    days: float,
    *,
    schedule: Schedule = SCHEDULE,
    needed: set[KeyId] | None = frozenset(),  # type: ignore[assignment]
) -> KeyRing:
    return ring.rotated(
        now=days * DAY, schedule=schedule, suites=_SUITES, needed=needed, make=_make
    )


def _states(ring: KeyRing) -> list[str]:
    return [entry.state.value for entry in ring.entries]


def test_a_key_only_ever_moves_on() -> None:
    """From destroyed there is no way back."""
    entry = KeyEntry(suite=DEFAULT_SUITE, public=bytes(32), state=KeyState.PENDING, since=0.0)
    for now, state in enumerate(list(KeyState)[1:], start=1):
        entry = entry.moved(now)
        assert (state, now) == (entry.state, entry.since)
    with pytest.raises(KeyError):
        entry.moved(4.0)


def test_the_first_key_of_every_suite_is_active_at_once() -> None:
    """Nobody has to wait for a party that has just been set up."""
    ring = KeyRing().rotated(
        now=0.0, schedule=SCHEDULE, suites=tuple(SUITES), needed=set(), make=_make
    )

    assert list(SUITES) == [entry.suite for entry in ring.entries]
    assert {"active"} == set(_states(ring))


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (0, ["active"]),
        (87.9, ["active"]),
        (88, ["active", "pending"]),
        (89.9, ["active", "pending"]),
        (90, ["expired", "active"]),
        (119.9, ["expired", "active"]),
        (120, ["destroyed", "active"]),
        (177.9, ["destroyed", "active"]),
        (178, ["destroyed", "active", "pending"]),
        (180, ["destroyed", "expired", "active"]),
    ],
)
def test_keys_live_by_the_schedule(days: float, expected: list[str]) -> None:
    """90 days active, published 2 days before, kept 30 days after; looked at every tenth of one."""
    ring = KeyRing()
    for tenth in range(round(days * 10) + 1):
        ring = _rotated(ring, tenth / 10)

    assert expected == _states(ring)


def test_looking_twice_changes_nothing() -> None:
    """The very same ring comes back when nothing is due."""
    ring = _rotated(_rotated(KeyRing(), 0), 88)

    assert ring is _rotated(ring, 88)


def test_after_a_long_sleep_the_next_key_is_still_published_first() -> None:
    """A service that was off for a year does not surprise anybody with a new key."""
    ring = _rotated(_rotated(KeyRing(), 0), 365)
    assert ["active", "pending"] == _states(ring)
    assert ["active", "pending"] == _states(_rotated(ring, 366.9))

    assert ["expired", "active"] == _states(_rotated(ring, 367))


def test_a_clock_that_runs_back_destroys_nothing() -> None:
    """What seems to be younger than nothing is not old."""
    ring = _rotated(_rotated(_rotated(KeyRing(), 1000), 1088), 1090)

    assert ring is _rotated(ring, 5)


def test_without_a_lifetime_no_key_is_replaced() -> None:
    """A century later the first one is active."""
    schedule = dataclasses.replace(SCHEDULE, lifetime=math.inf)
    ring = _rotated(KeyRing(), 0, schedule=schedule)

    assert ring is _rotated(ring, 36_500, schedule=schedule)


def test_a_key_that_an_unfinished_task_needs_is_kept() -> None:
    """However long it has expired; when the task is over it goes."""
    ring = _rotated(_rotated(_rotated(KeyRing(), 0), 88), 90)
    needed = {ring.entries[0].key_id}
    ring = _rotated(ring, 170, needed=needed)
    assert KeyState.EXPIRED is ring.entries[0].state

    assert KeyState.DESTROYED is _rotated(ring, 171).entries[0].state


def test_nothing_is_destroyed_while_it_is_not_known_what_is_needed() -> None:
    """As at the start, before the tasks have been read."""
    ring = _rotated(_rotated(_rotated(KeyRing(), 0), 88), 90)

    assert KeyState.EXPIRED is _rotated(ring, 150, needed=None).entries[0].state


def test_an_expired_key_is_found_and_a_destroyed_or_strange_one_is_refused_apart() -> None:
    """Three answers for three cases; the message names the key by its id, which is public."""
    ring = _rotated(_rotated(_rotated(KeyRing(), 0), 88), 90)
    old = ring.entries[0]
    assert old.key_id == ring.require(DEFAULT_SUITE, old.public, whose="analyzer_key")

    with pytest.raises(UnknownKeyError, match=r"analyzer_key, [0-9a-f]{16}, is none of this party"):
        ring.require(DEFAULT_SUITE, bytes(32), whose="analyzer_key")
    with pytest.raises(UnknownKeyError, match="has expired and is destroyed") as caught:
        _rotated(ring, 120).require(DEFAULT_SUITE, old.public, whose="analyzer_key")
    assert "FAILED_PRECONDITION" == caught.value.status
    assert old.key_id.hex()[:16] in str(caught.value)


def test_a_key_of_another_suite_is_another_key() -> None:
    """The same bytes under another name are not found."""
    ring = _rotated(KeyRing(), 0)
    with pytest.raises(UnknownKeyError):
        ring.require("x25519-hkdf-sha256-aes128gcm", ring.entries[0].public, whose="shuffler_key")


@pytest.mark.parametrize("state", [KeyState.ACTIVE, KeyState.PENDING])
def test_no_ring_has_two_keys_for_one_purpose(state: KeyState) -> None:
    """Nor one key twice."""
    ring = KeyRing().with_key(_make(DEFAULT_SUITE), state, 0.0)
    with pytest.raises(WireError, match="two active or two pending"):
        ring.with_key(_make(DEFAULT_SUITE), state, 1.0)
    with pytest.raises(WireError, match="twice"):
        KeyRing(ring.entries * 2)


def test_a_ring_is_read_as_it_was_written() -> None:
    """Suites, states and times."""
    ring = KeyRing()
    for day in (0, 88, 90, 120):
        ring = ring.rotated(
            now=day * DAY + 0.25, schedule=SCHEDULE, suites=tuple(SUITES), needed=set(), make=_make
        )

    assert ring == KeyRing.from_json(ring.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"keys": 5},
        {"keys": [5]},
        {"keys": [{}]},
        {"keys": [{"suite": "rot13", "public": "00", "state": "active", "since": 0}]},
        {"keys": [{"suite": DEFAULT_SUITE, "public": "zz", "state": "active", "since": 0}]},
        {"keys": [{"suite": DEFAULT_SUITE, "public": "09" * 32, "state": "lost", "since": 0}]},
        {"keys": [{"suite": DEFAULT_SUITE, "public": "09" * 32, "state": "active", "since": "x"}]},
        {"keys": [{"suite": [], "public": "09" * 32, "state": "active", "since": 0}]},
    ],
)
def test_what_is_not_a_ring_is_refused(change: dict[str, object]) -> None:
    """One kind of error, whatever is wrong."""
    text = json.dumps(json.loads(KeyRing().to_json()) | change)
    with pytest.raises(WireError):
        KeyRing.from_json(text)
    for nothing in ("", "[]", "5", '{"version": 1}', '{"version": 1, "keys": [{"since": NaN}]}'):
        with pytest.raises(WireError):
            KeyRing.from_json(nothing)


def test_a_time_that_no_float_holds_is_no_key_ring() -> None:
    """A whole number of 400 digits in the file is an error of ours."""
    ring = KeyRing().with_key(_make(DEFAULT_SUITE), KeyState.ACTIVE, 5.0)
    damaged = ring.to_json().replace("5.0", "9" * 400)

    with pytest.raises(WireError, match="not a key ring"):
        KeyRing.from_json(damaged)
