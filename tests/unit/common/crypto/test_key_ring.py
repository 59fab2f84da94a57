import dataclasses
import json
import math
from typing import Final

import pytest

from shuffledp.audit.harness.party_cores import SCHEDULE
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES, HpkePrivateKey, HpkePublicKey, KeyId
from shuffledp.common.crypto.key_ring import DAY, KeyRing, KeyState, Schedule
from shuffledp.common.errors import UnknownKeyError, WireError

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
    """90 days active, published 2 days before, kept 30 days after; rotated ten times a day."""
    ring = KeyRing()
    for tenth in range(round(days * 10) + 1):
        ring = _rotated(ring, tenth / 10)

    assert expected == _states(ring)
    assert ring is _rotated(ring, days)
    assert ring is _rotated(ring, 0)  # a clock that runs back


def test_a_ring_that_was_not_rotated_for_long_publishes_the_next_key_first() -> None:
    """This holds after a year's pause; with an infinite lifetime the first key stays active."""
    first = _rotated(KeyRing(), 0)
    ring = _rotated(first, 365)
    assert ["active", "pending"] == _states(ring)
    assert ["active", "pending"] == _states(_rotated(ring, 366.9))
    assert ["expired", "active"] == _states(_rotated(ring, 367))

    schedule = dataclasses.replace(SCHEDULE, lifetime=math.inf)
    assert first is _rotated(first, 36_500, schedule=schedule)


def test_destroyed_and_unknown_keys_are_refused_with_different_errors() -> None:
    """The message has the public key id; an expired key is still found."""
    ring = _rotated(_rotated(_rotated(KeyRing(), 0), 88), 90)
    old = ring.entries[0]
    assert old.key_id == ring.require(DEFAULT_SUITE, old.public, whose="analyzer_key")

    for suite, public in ((DEFAULT_SUITE, bytes(32)), (list(SUITES)[1], old.public)):
        with pytest.raises(UnknownKeyError, match=r"analyzer_key, [0-9a-f]{16}, is not a key of"):
            ring.require(suite, public, whose="analyzer_key")
    with pytest.raises(UnknownKeyError, match="expired and was destroyed") as caught:
        _rotated(ring, 120).require(DEFAULT_SUITE, old.public, whose="analyzer_key")
    assert "FAILED_PRECONDITION" == caught.value.status
    assert old.key_id.hex()[:16] in str(caught.value)


@pytest.mark.parametrize("state", [KeyState.ACTIVE, KeyState.PENDING])
def test_a_ring_has_one_active_and_one_pending_key(state: KeyState) -> None:
    """A second one is refused, and so is a key twice."""
    ring = KeyRing().with_key(_make(DEFAULT_SUITE), state, 0.0)
    with pytest.raises(WireError, match="two active or two pending"):
        ring.with_key(_make(DEFAULT_SUITE), state, 1.0)
    with pytest.raises(WireError, match="twice"):
        KeyRing(ring.entries * 2)


def test_a_ring_is_read_as_it_was_written() -> None:
    """Suites, states and times survive."""
    ring = KeyRing()
    for day in (0, 88, 90, 120):
        ring = ring.rotated(
            now=day * DAY + 0.25, schedule=SCHEDULE, suites=tuple(SUITES), needed=set(), make=_make
        )
        if day == 0:
            assert [(suite, "active") for suite in SUITES] == [
                (entry.suite, entry.state.value) for entry in ring.entries
            ]

    assert ring == KeyRing.from_json(ring.to_json())


_ENTRY: Final = {"suite": DEFAULT_SUITE, "public": "09" * 32, "state": "active", "since": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "rot13"},
        {"suite": []},
        {"public": "zz"},
        {"state": "lost"},
        {"since": "x"},
        {"since": 10**400},
    ],
)
def test_a_malformed_ring_is_refused(change: dict[str, object]) -> None:
    """Every damage gives a WireError."""
    KeyRing.from_json(json.dumps({"version": 1, "keys": [_ENTRY]}))
    entries: tuple[object, ...] = ([_ENTRY | change], [5], [{}], 5)
    for text in (
        *(json.dumps({"version": 1, "keys": keys}) for keys in entries),
        json.dumps({"version": 2, "keys": [_ENTRY]}),
        *("", "[]", "5", '{"version": 1}', '{"version": 1, "keys": [{"since": NaN}]}'),
    ):
        with pytest.raises(WireError):
            KeyRing.from_json(text)
