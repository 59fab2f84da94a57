"""
The life cycle of encryption keys. Pure: the caller passes the time and creates the keys.

    pending ─▶ active ─▶ expired ─▶ destroyed

A pending key is published for the overlap period before it becomes active. New tasks name
the active key of their suite, to which submissions are sealed. An expired key still opens; it is
destroyed after the retention period, once no unfinished task needs it.
"""

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Any, Final, Self

from shuffledp.common.crypto.hpke import HpkePublicKey, KeyId, key_id
from shuffledp.common.errors import UnknownKeyError, WireError

DAY: Final = 86_400.0
"""A day in seconds."""
MAX_DAYS: Final = 36_500
_LONGEST_TASK: Final = 5 * 365 * DAY
"""How long a task may run after its key was replaced. Until then a stolen key is of use to an
analyzer that publishes tasks with it."""
_FORMAT: Final = 1


class KeyState(Enum):
    """The states of a key, in their order."""

    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"
    DESTROYED = "destroyed"


_NEXT_STATE: Final = dict(pairwise(KeyState))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Durations of the states of keys, in seconds."""

    lifetime: float
    """Time for which a key is active; infinite if keys never rotate."""
    overlap: float
    """Time for which a pending key is published before it becomes active."""
    retention: float
    """Minimum time from a key's expiry to its destruction."""
    longest_task: float = _LONGEST_TASK
    """How long a task may run after its key was replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """One key of a ring, without the private half."""

    suite: str
    public: bytes
    state: KeyState
    since: float
    """Start of this state, in seconds since 1970 UTC."""

    @property
    def key_id(self) -> KeyId:
        """The key's id; see KeyId."""
        return key_id(self.suite, self.public)

    def moved(self, now: float) -> "KeyEntry":
        """Return the entry in its next state; raise KeyError for a destroyed key."""
        return replace(self, state=_NEXT_STATE[self.state], since=now)

    def end(self, schedule: Schedule) -> float:
        """Return the latest end of tasks that use an active or a pending key; may be infinite."""
        waiting = schedule.overlap if self.state is KeyState.PENDING else 0.0
        return self.since + waiting + schedule.lifetime + schedule.longest_task


@dataclass(frozen=True, slots=True)
class KeyRing:
    """
    All keys that a party has ever had, oldest first.

    Each suite has at most one active and one pending key.
    """

    entries: tuple[KeyEntry, ...] = ()

    def __post_init__(self) -> None:
        if len({entry.key_id for entry in self.entries}) < len(self.entries):
            raise WireError("a key ring contains a key twice")
        single = [
            (entry.suite, entry.state)
            for entry in self.entries
            if entry.state in {KeyState.PENDING, KeyState.ACTIVE}
        ]
        if len(set(single)) < len(single):
            raise WireError("a key ring has two active or two pending keys of one suite")

    def in_state(self, suite: str, state: KeyState) -> KeyEntry | None:
        """Return a suite's key in `state`, active or pending; None if there is none."""
        found = (each for each in self.entries if (each.suite, each.state) == (suite, state))
        return next(found, None)

    def held(self) -> list[KeyEntry]:
        """List the keys that are not destroyed."""
        return [entry for entry in self.entries if entry.state is not KeyState.DESTROYED]

    def require(self, suite: str, public: bytes, *, whose: str) -> KeyId:
        """Return a task's key id; raise UnknownKeyError, naming `whose`, if the key is not held."""
        wanted = key_id(suite, public)
        short = wanted.hex()[:16]
        entry = next((each for each in self.entries if each.key_id == wanted), None)
        if entry is None:
            raise UnknownKeyError(f"the task's {whose}, {short}, is not a key of this party")
        if entry.state is KeyState.DESTROYED:
            raise UnknownKeyError(
                f"the task's {whose}, {short}, expired and was destroyed: nothing sealed to it can "
                "be opened"
            )
        return wanted

    def with_key(self, key: HpkePublicKey, state: KeyState, now: float) -> "KeyRing":
        """Return the ring with one more key, in this state since `now`."""
        entry = KeyEntry(suite=key.suite, public=key.raw, state=state, since=now)
        return KeyRing((*self.entries, entry))

    def not_after(self, now: float) -> "KeyRing":
        """Return the ring without dates ahead: states that began after `now` begin at `now`."""
        dated = (replace(entry, since=min(entry.since, now)) for entry in self.entries)
        return KeyRing(tuple(dated))

    def rotated(
        self,
        *,
        now: float,
        schedule: Schedule,
        suites: Sequence[str],
        needed: Collection[KeyId] | None,
        make: Callable[[str], HpkePublicKey],
    ) -> "KeyRing":
        """
        Return the ring after the changes that are due at `now`; this ring if there are none.

        Each of the suites needs an active key. `make` creates a key, and stores its private half
        durably. Keys that unfinished tasks need are not destroyed; none is if `needed` is None.
        """
        ring = self
        for suite in suites:
            ring = _renewed(ring, suite, now, schedule, make)
        if needed is None:
            return ring
        old = ring.past_retention(now, schedule)
        return _replacing(ring, *(key.moved(now) for key in old if key.key_id not in needed))

    def past_retention(self, now: float, schedule: Schedule) -> list[KeyEntry]:
        """List the expired keys that are destroyed unless an unfinished task needs them."""
        return [
            entry
            for entry in self.entries
            if entry.state is KeyState.EXPIRED and now - entry.since >= schedule.retention
        ]

    def to_json(self) -> str:
        """Encode the ring for a file. It contains no secret."""
        keys = [
            asdict(entry) | {"public": entry.public.hex(), "state": entry.state.value}
            for entry in self.entries
        ]
        return json.dumps({"version": _FORMAT, "keys": keys}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a ring; raise WireError if the text is invalid."""
        try:
            fields = json.loads(text)
            if fields["version"] != _FORMAT:
                raise WireError(f"this program reads version {_FORMAT} of key rings")
            return cls(tuple(_entry(key) for key in fields["keys"]))
        except (
            *(ValueError, TypeError, KeyError, AttributeError),
            *(RecursionError, OverflowError),  # from nested lists and integers of 400 digits
        ) as error:
            raise WireError("this is not a key ring") from error


def _renewed(
    ring: KeyRing, suite: str, now: float, schedule: Schedule, make: Callable[[str], HpkePublicKey]
) -> KeyRing:
    """Return the ring after the due changes of one suite's active and pending keys."""
    active = ring.in_state(suite, KeyState.ACTIVE)
    pending = ring.in_state(suite, KeyState.PENDING)
    if active is None:
        # The first key is active at once, since no other key was published.
        if pending is None:
            return ring.with_key(make(suite), KeyState.ACTIVE, now)
        return _replacing(ring, pending.moved(now))
    age = now - active.since
    if pending is None:
        if age < schedule.lifetime - schedule.overlap:
            return ring
        return ring.with_key(make(suite), KeyState.PENDING, now)
    if age < schedule.lifetime or now - pending.since < schedule.overlap:
        return ring
    # Both change together, so that exactly one key is active at any time.
    return _replacing(ring, active.moved(now), pending.moved(now))


def _replacing(ring: KeyRing, *changed: KeyEntry) -> KeyRing:
    """Return the ring with changed entries in place of the old ones."""
    if not changed:
        return ring
    by_id = {entry.key_id: entry for entry in changed}
    return KeyRing(tuple(by_id.get(entry.key_id, entry) for entry in ring.entries))


def _entry(fields: dict[str, Any]) -> KeyEntry:
    since = float(fields["since"])
    if not math.isfinite(since):
        raise ValueError("since must be finite")
    key = HpkePublicKey(fields["suite"], bytes.fromhex(fields["public"]))
    return KeyEntry(suite=key.suite, public=key.raw, state=KeyState(fields["state"]), since=since)
