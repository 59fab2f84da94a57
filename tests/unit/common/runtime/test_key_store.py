import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.harness.party_cores import SCHEDULE, store_holding
from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.errors import SettingsError, StorageError
from shuffledp.common.runtime.confirmed_clock import TOLERANCE, ConfirmedClock, confirm
from shuffledp.common.runtime.key_store import (
    RING_FILE,
    KeyStore,
    Rotation,
    load_identity,
    renew_identity,
)
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import load_witness_key
from shuffledp.common.task_digest import TaskDigest
from tests.support.faults import Crash, Faults, FaultyState, Life
from tests.support.keys import key_files
from tests.support.machines import Machine

_CONTEXT = hpke.report_context(TaskDigest(bytes(32)))
_NO_KEYS: set[Any] = set()


def _store(path: Path) -> KeyStore:
    return KeyStore(StateDirectory.open(path / "state"), SCHEDULE)


def _opens(store: KeyStore, public: hpke.HpkePublicKey) -> bool:
    key = store.private_key(public.suite, public.raw, whose="analyzer_key")
    return key.open(public.sealer(_CONTEXT)(b"report"), _CONTEXT) == b"report"


def _run(path: Path, *days: float) -> KeyStore:
    """Rotate on each of these days, each time with a new store."""
    for day in days:
        store = _store(path)
        store.rotate(day * DAY, _NO_KEYS)
    return store


def test_a_restart_keeps_the_keys_of_every_suite(state: StateDirectory) -> None:
    """The keys are the same, and they open."""
    store = KeyStore(state, SCHEDULE)
    store.rotate(0.0)
    again = KeyStore(state, SCHEDULE)
    again.rotate(1.0)

    assert store.ring == again.ring
    for suite in hpke.SUITES:
        assert _opens(again, store.public_key(suite))


@pytest.mark.parametrize("days", [(0,), (0, 88), (0, 88, 90), (0, 88, 90, 120, 178, 180, 210)])
def test_a_crash_around_any_write_loses_no_key(tmp_path: Path, days: tuple[float, ...]) -> None:
    """The next start works, published keys open until they are due, and no file is left over."""
    for boundary in range(13):
        path = tmp_path / str(boundary)
        published = _run(path, *days[:-1]).public_key() if days[:-1] else None
        life = Life("analyzer", Faults(countdown=boundary))
        state = FaultyState.of(path / "state", life)
        with contextlib.suppress(Crash):
            KeyStore(state, SCHEDULE).rotate(days[-1] * DAY, _NO_KEYS)
        store = _run(path, days[-1], days[-1])
        store = _run(path, days[-1])

        assert _opens(store, store.public_key())
        if published is not None:
            assert _opens(store, published)
        names = {f"hpke-{entry.key_id.hex()}.key" for entry in store.ring.held()}
        assert sorted(names) == key_files(path / "state")


def test_a_key_that_the_ring_does_not_name_opens_and_is_never_used(state: StateDirectory) -> None:
    """A ring may be lost, or restored from an old backup; the key is destroyed in time."""
    key = hpke.HpkePrivateKey.generate(list(hpke.SUITES)[2])
    store = store_holding(state, key)

    assert _opens(store, key.public_key())
    assert key.public_key().raw != store.public_key(key.suite).raw
    assert store.rotate(30 * DAY, _NO_KEYS)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            lambda state: next(state.glob("hpke-*")).unlink(),
            SettingsError,
            r"hpke-.* is missing .*: put it back, or remove",
        ),
        (
            lambda state: (state / RING_FILE).write_bytes(b"\xff"),
            SettingsError,
            r"keys\.json .* is not a key ring",
        ),
        (
            lambda state: ((state / RING_FILE).unlink(), (state / RING_FILE).mkdir()),
            StorageError,
            "a file of the state directory cannot be opened",
        ),
    ],
)
def test_a_damaged_store_stops_the_start(
    tmp_path: Path, damage: Callable[[Path], object], error: type[Exception], message: str
) -> None:
    """The message says what to do; a key file must hold the key that it names."""
    _run(tmp_path, 0)
    damage(tmp_path / "state")
    with pytest.raises(error, match=message):
        _store(tmp_path)

    state = StateDirectory.open(tmp_path / "other")
    state.secret(f"hpke-{bytes(32).hex()}.key", lambda: bytes(range(32)))
    with pytest.raises(SettingsError, match="does not hold the key that it names"):
        KeyStore(state, SCHEDULE).rotate(0.0)


def test_neither_the_store_nor_its_ring_shows_a_secret(tmp_path: Path) -> None:
    """The ring's file is not encrypted."""
    store = _run(tmp_path, 0, 88)
    secrets = [
        store.private_key(entry.suite, entry.public, whose="key").private_bytes()
        for entry in store.ring.held()
    ]
    shown = repr(store) + repr(store.ring) + (tmp_path / "state" / RING_FILE).read_text("ascii")

    assert 2 * len(hpke.SUITES) == len(secrets)
    for secret in secrets:
        assert secret.hex() not in shown
        assert repr(secret) not in shown


class _Party:
    """A party that counts the calls of its key rotation."""

    def __init__(self, path: Path) -> None:
        self.keys = _store(path)
        self.clock = ManualClock(0.0)
        self.needed_keys: set[hpke.KeyId] = set()
        self.calls: Counter[str] = Counter()
        self.broken = False
        self.rotation = Rotation(
            keys=self.keys,
            clock=self.clock,
            needed=self.needed,
            forget=lambda: self.calls.update(["forget"]),
            publish=lambda: self.calls.update(["publish"]),
        )

    async def needed(self) -> set[hpke.KeyId]:
        """Return the keys of unfinished tasks."""
        self.calls.update(["needed"])
        if self.broken:
            raise OSError
        return self.needed_keys

    async def at(self, *days: float) -> None:
        """Rotate on these days."""
        for day in days:
            self.clock.seconds = day * DAY
            await self.rotation.rotate()


async def test_keys_are_rotated_and_tasks_read_only_when_a_key_could_go(tmp_path: Path) -> None:
    """Public keys are published each time; workers forget a key once it is destroyed."""
    party = _Party(tmp_path)
    await party.at(0)
    first = party.keys.public_key()
    party.needed_keys = {key.key_id for key in map(party.keys.public_key, hpke.SUITES)}
    await party.at(88, 90, 119)
    assert first.raw != party.keys.public_key().raw
    assert {"publish": 4} == party.calls

    await party.at(120)
    assert {"needed": 1, "publish": 5} == party.calls
    party.needed_keys = set()
    await party.at(121)
    assert {"needed": 2, "forget": 1, "publish": 6} == party.calls


async def test_keys_dated_by_a_clock_far_ahead_are_rotated_after_its_confirmation(
    state: StateDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else they would stay for all those years. Nothing changes before, and the log tells it."""
    party, machine = _Party(tmp_path), Machine()
    machine.wall += 3650 * DAY
    clock = ConfirmedClock(state, machine)
    rotation = replace(party.rotation, clock=clock)
    await rotation.rotate()
    first, ring = party.keys.public_key(), party.keys.ring
    machine.wall -= 3650 * DAY
    await rotation.rotate()
    waiting = party.keys.ring
    confirm(state, machine.reading())
    clock.check()
    await rotation.rotate()
    dates = {entry.since for entry in party.keys.ring.held()}
    for days in (88, 2):
        machine.run(days * DAY)
        await rotation.rotate()

    assert ring == waiting
    assert {machine.wall - 90 * DAY} == dates
    assert first.raw != party.keys.public_key().raw
    assert "keys were dated ahead of the clock" in caplog.messages


def test_a_tolerated_step_back_of_the_clock_moves_no_date(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Time servers correct a running clock; one second more is a clock that was ahead."""
    store, now = _store(tmp_path), 1000.0
    store.rotate(now)
    ring = store.ring
    store.rotate(now - TOLERANCE, confirmed=True)
    assert (ring, False) == (store.ring, "keys were dated ahead of the clock" in caplog.messages)

    store.rotate(now - TOLERANCE - 1, confirmed=True)
    assert {now - TOLERANCE - 1} == {entry.since for entry in store.ring.entries}
    assert "keys were dated ahead of the clock" in caplog.messages


async def test_a_failed_rotation_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk may be full; no key is destroyed before the unfinished tasks are known."""
    party = _Party(tmp_path)
    await party.at(0, 88, 90)
    party.broken = True
    party.clock.seconds = 120 * DAY
    running = asyncio.create_task(party.rotation.run(tick=0.001))
    async with asyncio.timeout(10):
        while party.calls["needed"] < 3:
            await asyncio.sleep(0.001)
        assert 0 == party.calls["forget"]
        party.broken = False
        while party.calls["forget"] == 0:
            await asyncio.sleep(0.001)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

    assert any(record.getMessage() == "keys not rotated yet" for record in caplog.records)


@pytest.mark.parametrize(
    ("load", "secret", "public"),
    [
        (load_identity, "identity.key", "identity.pub"),
        (lambda state: load_witness_key(state, "issuer"), "witness.key", "witness.pub"),
        (lambda state: KeyStore(state, SCHEDULE), "keys.json", "envelope.pub"),
    ],
    ids=["identity", "witness", "encryption keys"],
)
@pytest.mark.parametrize("dangling", [False, True])
def test_a_restore_without_a_private_key_is_refused(
    state: StateDirectory,
    tmp_path: Path,
    load: Callable[[StateDirectory], Any],
    secret: str,
    public: str,
    *,
    dangling: bool,
) -> None:
    """Others pin the public half: it stays as it is, until the operator removes it."""
    made = load(state)
    if isinstance(made, KeyStore):
        made.rotate(0.0)
        state.publish(public, "signed key")
        for name in key_files(state.path):
            (state.path / name).unlink()
    pinned = (state.path / public).read_bytes()
    (state.path / secret).unlink()
    if dangling:
        (state.path / secret).symlink_to(tmp_path / "not mounted")

    with pytest.raises(SettingsError, match=r"is a link|is missing in"):
        load(state)
    assert pinned == (state.path / public).read_bytes()
    (state.path / secret).unlink(missing_ok=True)
    (state.path / public).unlink()
    load(state)


@pytest.mark.parametrize(
    "other", ["keys.json", "hpke-00.key", "token-00.key", "address", "party.sqlite"]
)
def test_an_identity_that_is_missing_beside_files_of_a_start_is_refused(
    state: StateDirectory, other: str
) -> None:
    """Others pin the lost one, even if no file here is its public half. None is made."""
    state.publish(other, "")
    with pytest.raises(SettingsError, match=rf"identity\.key is .* while {other} is .* --renew"):
        load_identity(state)
    assert [other] == [path.name for path in state.path.iterdir()]

    renewed = renew_identity(state)
    assert renewed.public_identity() == load_identity(state).public_identity()


def test_a_renewed_identity_excuses_no_missing_database(state: StateDirectory) -> None:
    """Only a first start makes a database, and a renewal is none."""
    KeyStore(state, SCHEDULE).rotate(0.0)
    renew_identity(state)

    with pytest.raises(SettingsError, match="keys confirm-restore"):
        state.database("analyzer.sqlite")


def test_a_renewed_identity_replaces_the_old_one(state: StateDirectory) -> None:
    """The operator asked for it."""
    old, new = load_identity(state), renew_identity(state)

    assert old.public_identity() != new.public_identity()
    assert new.public_identity() == load_identity(state).public_identity()
    assert new.public_identity().raw.hex() == (state.path / "identity.pub").read_text()
