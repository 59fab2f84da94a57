import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, report_context
from common.crypto.key_ring import DAY, KeyState
from common.crypto.suites import DEFAULT_SUITE, SUITES
from common.errors import SettingsError, StorageError, UnknownKeyError
from common.runtime.key_store import RING_FILE, KeyStore
from common.runtime.state_directory import StateDirectory
from common.task_digest import TaskDigest
from tests.support.keys import SCHEDULE, key_files, store_holding

_CONTEXT = report_context(TaskDigest(bytes(32)))
_NOBODY: set[Any] = set()


def _store(path: Path) -> KeyStore:
    return KeyStore(StateDirectory.open(path / "state"), SCHEDULE, suites=(DEFAULT_SUITE,))


def _opens(store: KeyStore, public: HpkePublicKey) -> bool:
    key = store.private_key(public.suite, public.raw, whose="analyzer_key")
    return key.open(public.seal(b"report", _CONTEXT), _CONTEXT) == b"report"


def _run(path: Path, *days: float) -> KeyStore:
    """Rotate on each of these days, each time by a process of its own."""
    for day in days:
        store = _store(path)
        store.rotate(day * DAY, _NOBODY)
    return store


def test_the_keys_of_every_suite_are_there_after_a_restart(tmp_path: Path) -> None:
    """The same, and they open."""
    state = StateDirectory.open(tmp_path / "state")
    store = KeyStore(state, SCHEDULE)
    store.rotate(0.0)
    again = KeyStore(state, SCHEDULE)
    again.rotate(1.0)

    assert store.ring == again.ring
    for suite in SUITES:
        assert _opens(again, store.public_key(suite))


def test_a_report_to_an_expired_key_opens_until_the_key_is_destroyed(tmp_path: Path) -> None:
    """Then its file is gone, and whoever asks is told why."""
    first = _run(tmp_path, 0).public_key()
    store = _run(tmp_path, 88, 90, 119)
    assert first.raw != store.public_key().raw
    assert _opens(store, first)
    assert 2 == len(key_files(tmp_path / "state"))

    store = _run(tmp_path, 120)
    assert 1 == len(key_files(tmp_path / "state"))
    for late in (store, _store(tmp_path)):
        with pytest.raises(UnknownKeyError, match="is destroyed"):
            late.private_key(first.suite, first.raw, whose="analyzer_key")


def test_a_key_that_is_needed_is_kept(tmp_path: Path) -> None:
    """And destroyed when it no longer is; only then is anybody to forget it."""
    first = _run(tmp_path, 0).public_key()
    store = _run(tmp_path, 88, 90)
    assert store.may_destroy(150 * DAY)
    assert not store.may_destroy(119 * DAY)

    assert not store.rotate(150 * DAY, {first.key_id})
    assert not store.rotate(151 * DAY)
    assert _opens(store, first)
    assert store.rotate(152 * DAY, _NOBODY)
    assert first.key_id not in store._keys


def test_a_pending_key_is_shown_before_it_is_used(tmp_path: Path) -> None:
    """And opens already: whoever was told of it may use it."""
    store = _run(tmp_path, 0, 88)
    pending = store.find(DEFAULT_SUITE, KeyState.PENDING)

    assert pending is not None
    assert _opens(store, pending)
    assert pending.raw == _run(tmp_path, 90).public_key().raw


class _CrashError(Exception):
    """A process that dies."""


class _CrashingState(StateDirectory):
    """A state directory whose process dies before one of its writes."""

    left: ClassVar[list[int]] = [0]

    def _count(self) -> None:
        if self.left[0] == 0:
            raise _CrashError
        self.left[0] -= 1

    def secret(self, name: str, make: Any) -> bytes:
        """Count what would write."""
        if not (self.path / name).exists():
            self._count()
        return super().secret(name, make)

    def publish(self, name: str, content: str) -> None:
        """Count."""
        self._count()
        super().publish(name, content)

    def destroy(self, name: str) -> None:
        """Count."""
        self._count()
        super().destroy(name)


@pytest.mark.parametrize("days", [(0,), (0, 88), (0, 88, 90), (0, 88, 90, 120, 178, 180, 210)])
def test_a_crash_before_any_write_leaves_a_ring_that_goes_on(
    tmp_path: Path, days: tuple[float, ...]
) -> None:
    """
    Whichever write is the first that does not happen: the next start works, every key that was
    ever published still opens unless it was due to be destroyed, and no file is left over.
    """
    for writes in range(3):
        path = tmp_path / str(writes)
        published = _run(path, *days[:-1]).public_key() if days[:-1] else None
        state = _CrashingState.open(path / "state")
        state.left[0] = writes
        try:
            crashing = KeyStore(state, SCHEDULE, suites=(DEFAULT_SUITE,))
            crashing.rotate(days[-1] * DAY, _NOBODY)
        except _CrashError:
            pass
        store = _run(path, days[-1], days[-1])
        store = _run(path, days[-1])

        assert _opens(store, store.public_key())
        if published is not None:
            assert _opens(store, published)
        names = {f"hpke-{entry.key_id.hex()}.key" for entry in store.ring.kept()}
        assert sorted(names) == key_files(path / "state")


def test_a_key_that_no_ring_names_opens_and_is_never_used(tmp_path: Path) -> None:
    """Such as after a crash, or with a ring from an older backup; in time it is destroyed."""
    key = HpkePrivateKey.generate(list(SUITES)[2])
    state = StateDirectory.open(tmp_path / "state")
    store = store_holding(state, key)

    assert _opens(store, key.public_key())
    assert key.public_key().raw != store.public_key(key.suite).raw
    assert store.rotate(30 * DAY, _NOBODY)


def test_without_its_ring_every_key_still_opens(tmp_path: Path) -> None:
    """A lost ring loses no report; a new key is active."""
    first = _run(tmp_path, 0).public_key()
    (tmp_path / "state" / RING_FILE).unlink()
    store = _run(tmp_path, 1)

    assert _opens(store, first)
    assert first.raw != store.public_key().raw


def _make_a_folder(ring: Path) -> None:
    ring.unlink()
    ring.mkdir()


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
        (lambda state: _make_a_folder(state / RING_FILE), StorageError, "disk of the state"),
        *(
            (
                lambda state, name=name: (state / name).write_bytes(bytes(32)),
                SettingsError,
                f"{name} .* an early version: .* or move it away",
            )
            for name in ("reports.key", "envelope.key")
        ),
    ],
)
def test_a_damaged_store_stops_the_start(
    tmp_path: Path, damage: Callable[[Path], None], error: type[Exception], message: str
) -> None:
    """A sentence says what to do; going on would lose keys in silence."""
    _run(tmp_path, 0)
    damage(tmp_path / "state")

    with pytest.raises(error, match=message):
        _store(tmp_path)


def test_a_file_with_another_key_than_its_name_says_is_refused(tmp_path: Path) -> None:
    """Even one that was sealed under the right state key."""
    state = StateDirectory.open(tmp_path / "state")
    name = f"hpke-{bytes(32).hex()}.key"
    state.secret(name, lambda: bytes(range(32)))

    with pytest.raises(SettingsError, match="does not hold the key of its name"):
        _store(tmp_path).rotate(0.0)


def test_neither_the_store_nor_its_ring_shows_a_secret(tmp_path: Path) -> None:
    """The ring's file is for everybody to read."""
    store = _run(tmp_path, 0, 88)
    secrets = [
        store.private_key(entry.suite, entry.public, whose="key").private_bytes()
        for entry in store.ring.kept()
    ]
    shown = repr(store) + repr(store.ring) + (tmp_path / "state" / RING_FILE).read_text("ascii")

    assert 2 == len(secrets)
    for secret in secrets:
        assert secret.hex() not in shown
        assert repr(secret) not in shown
    assert 2 == len(json.loads((tmp_path / "state" / RING_FILE).read_text("ascii"))["keys"])
