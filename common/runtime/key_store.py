"""
A party's keys on disk: its ring of encryption keys, their rotation, and its signing identity.

The ring holds no secret; each private key has its own encrypted file. A crash at any moment
leaves a valid ring: a private key is durable before the ring names it, the ring is replaced as a
whole, and a key's file is destroyed after the ring records it. A key file that the ring does not
name is added as an expired key, which opens but never seals.
"""

import math
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES, HpkePrivateKey, HpkePublicKey, KeyId
from shuffledp.common.crypto.key_ring import KeyRing, KeyState, Schedule
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError, WireError
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.runtime import database, logs
from shuffledp.common.runtime.clock import ComparedClock, repeat
from shuffledp.common.runtime.confirmed_clock import TOLERANCE
from shuffledp.common.runtime.state_directory import StateDirectory

RING_FILE: Final = "keys.json"
_KEY_FILES: Final = "hpke-*.key"
_DATABASES: Final = "*.sqlite"
_LATER: Final = ("envelope*.pub", _DATABASES)
"""Files that are only made after keys."""


class KeyStore:
    """The encryption keys of one party."""

    def __init__(self, state: StateDirectory, schedule: Schedule) -> None:
        """Read the ring and its keys, or raise SettingsError; `rotate` creates missing keys."""
        self._state = state
        self._schedule = schedule
        self.ring = self._read()
        """The current ring."""
        self._keys: dict[KeyId, HpkePrivateKey] = {
            entry.key_id: self._load(_key_file(entry.key_id), entry.suite)
            for entry in self.ring.held()
        }

    def rotate(
        self, now: float, needed: Collection[KeyId] | None = None, *, confirmed: bool = False
    ) -> bool:
        """
        Create, activate, expire and destroy keys when due at `now`, seconds since 1970. Idempotent.

        `needed` are the keys of unfinished tasks; None if unknown, so that none is destroyed. If
        `now` is `confirmed`, dates later by more than the clock's tolerance, by a clock that was
        ahead, are moved back to it: else nothing would be due for years.
        Returns whether a key was destroyed, which worker processes must then forget.
        """
        ahead = any(entry.since > now + TOLERANCE for entry in self.ring.entries)
        dated = self.ring.not_after(now) if confirmed and ahead else self.ring
        if dated != self.ring:
            logs.event("keys were dated ahead of the clock", {}, level="WARNING")
        ring = self._with_strays(dated, now)
        ring = ring.rotated(
            now=now,
            schedule=self._schedule,
            suites=tuple(SUITES),
            needed=needed,
            make=lambda suite: self._store(HpkePrivateKey.generate(suite)),
        )
        if ring != self.ring:
            self._state.publish(RING_FILE, ring.to_json())
            for entry in ring.entries:
                if entry not in self.ring.entries:
                    logs.event("key " + entry.state.value, {"key_id": entry.key_id.hex()})
            self.ring = ring
        return self._destroy_files()

    def may_destroy(self, now: float) -> bool:
        """Return whether a key is due to be destroyed unless an unfinished task needs it."""
        return bool(self.ring.past_retention(now, self._schedule))

    def find(self, suite: str, state: KeyState) -> HpkePublicKey | None:
        """Return a suite's key in `state`, active or pending; None if there is none."""
        entry = self.ring.in_state(suite, state)
        return None if entry is None else HpkePublicKey(suite, entry.public)

    def end(self, key: HpkePublicKey) -> int:
        """Return the last second at which tasks may use an active or pending key."""
        entry = next(each for each in self.ring.held() if each.key_id == key.key_id)
        return math.floor(min(entry.end(self._schedule), MAX_UNIX_TIME))

    def public_key(self, suite: str = DEFAULT_SUITE) -> HpkePublicKey:
        """Return a suite's active key, for new tasks; raise WireError if there is none."""
        key = self.find(suite, KeyState.ACTIVE)
        if key is None:
            raise WireError(f"this party has no active key of the suite {suite}")
        return key

    def private_key(self, suite: str, public: bytes, *, whose: str) -> HpkePrivateKey:
        """Return a task's key, or raise UnknownKeyError, which describes the key as `whose`."""
        return self._keys[self.ring.require(suite, public, whose=whose)]

    def _read(self) -> KeyRing:
        path = self._state.path / RING_FILE
        try:
            with database.storage_failures():
                content = path.read_bytes() if path.exists() else None
            had_keys = any(map(self._state.names, _LATER)) and not self._state.names(_KEY_FILES)
            lost = content is None and (had_keys or path.is_symlink())
            if lost and not self._state.restore_confirmed():
                raise SettingsError(
                    f"{RING_FILE} is missing in the state directory, or a link to nothing: put it "
                    f"back, with {_KEY_FILES}, from a backup or, for new keys, which open nothing "
                    f"sealed before: shuffledp keys confirm-restore {self._state.path}"
                )
            return KeyRing() if content is None else KeyRing.from_json(content.decode("ascii"))
        except (WireError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"{RING_FILE} in the state directory is not a key ring: put it back from a backup, "
                "or remove it. Without it, existing key files can still open, but never seal again"
            ) from error

    def _with_strays(self, ring: KeyRing, now: float) -> KeyRing:
        """
        Add keys that have a file but no entry, as after a crash, in the state expired.

        Not before any other date of the ring: the clock may be behind, and destroy them early.
        """
        now = max([now, *(entry.since for entry in ring.entries)])
        known = {_key_file(entry.key_id) for entry in ring.entries}
        for name in self._state.names(_KEY_FILES):
            if name not in known:
                key = self._load(name, None)
                self._keys[key.public_key().key_id] = key
                ring = ring.with_key(key.public_key(), KeyState.EXPIRED, now)
        return ring

    def _store(self, key: HpkePrivateKey) -> HpkePublicKey:
        """Store a private key durably, and return its public half."""
        public = key.public_key()
        self._state.secret(_key_file(public.key_id), key.private_bytes)
        self._keys[public.key_id] = key
        return public

    def _load(self, name: str, suite: str | None) -> HpkePrivateKey:
        """Read a key from the file named by its id; if `suite` is None, try every suite."""

        def missing() -> bytes:
            raise SettingsError(
                f"{name} is missing in the state directory: put it back, or remove its entry from "
                f"{RING_FILE} and lose all that is sealed to it"
            )

        raw = self._state.secret(name, missing)
        for candidate in SUITES if suite is None else (suite,):
            try:
                key = HpkePrivateKey(candidate, raw)
            except WireError:
                break
            if _key_file(key.public_key().key_id) == name:
                return key
        raise SettingsError(f"{name} in the state directory does not hold the key that it names")

    def _destroy_files(self) -> bool:
        gone = [entry.key_id for entry in self.ring.entries if entry.state is KeyState.DESTROYED]
        for key in gone:
            self._keys.pop(key, None)
        files = set(self._state.names(_KEY_FILES)).intersection(map(_key_file, gone))
        for name in files:
            self._state.destroy(name)
        return bool(files)


def _key_file(key: KeyId) -> str:
    return _KEY_FILES.replace("*", key.hex())


_TICK: Final = 600.0
"""Seconds between checks for due rotations; short, since keys live for days."""


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Rotates a party's keys when they are due."""

    keys: KeyStore
    clock: ComparedClock
    needed: Callable[[], Awaitable[Collection[KeyId] | None]]
    """Returns the keys of unfinished tasks, which are not destroyed; if None, the tasks are unknown
    and no key is destroyed."""
    forget: Callable[[], None]
    """Makes worker processes forget destroyed keys."""
    publish: Callable[[], None] = lambda: None
    """Publishes the public keys, after each rotation."""

    async def rotate(self) -> None:
        """Rotate the keys that are due, and publish the public keys."""
        confirmed = self.clock.confirmed_now()
        now = self.clock.now() if confirmed is None else confirmed
        needed = await self.needed() if self.keys.may_destroy(now) else None
        if self.keys.rotate(now, needed, confirmed=confirmed is not None):
            self.forget()
        self.publish()

    async def run(self, tick: float = _TICK) -> None:
        """Rotate due keys every `tick` seconds for as long as the service runs."""
        await repeat(self.rotate, tick, "keys not rotated yet", wait=True)


_IDENTITY_FILE: Final = "identity.key"
_PUBLIC_IDENTITY_FILE: Final = "identity.pub"


def load_identity(state: StateDirectory) -> SigningIdentity:
    """
    Load or create a party's signing identity, and publish its public half.

    Raises SettingsError if it is missing beside its public half, a database or a file of a start,
    as after a partial restore.
    """
    left = state.names(_DATABASES) + state.of_a_start()
    if left and not os.path.lexists(state.path / _IDENTITY_FILE):
        raise SettingsError(
            f"{_IDENTITY_FILE} is missing in the state directory, while {left[0]} is there: put it "
            "back from a backup or, for a new one, which all who pin the old one must learn, run "
            f"shuffledp keys identity {state.path} --renew"
        )
    return _load_identity(state)


def _load_identity(state: StateDirectory) -> SigningIdentity:
    raw = state.secret(
        _IDENTITY_FILE,
        lambda: SigningIdentity.generate().private_bytes(),
        public=_PUBLIC_IDENTITY_FILE,
    )
    identity = SigningIdentity(raw)
    state.publish(_PUBLIC_IDENTITY_FILE, identity.public_identity().raw.hex())
    return identity


def renew_identity(state: StateDirectory) -> SigningIdentity:
    """
    Replace a party's signing identity. Parties that pin the old identity refuse the new one.

    Run by an operator, while no service holds `state`.
    """
    (state.path / _PUBLIC_IDENTITY_FILE).unlink(missing_ok=True)
    state.destroy(_IDENTITY_FILE)
    return _load_identity(state)
