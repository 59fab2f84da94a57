"""
Behaviours of simulated users, the answers that services must return, and counts of those. Pure.

The submission of an unanswered attempt may have been stored. The next attempt is then answered
`repeated`, and the service may count one more. Each such attempt widens the range of every count by
one; if every attempt was answered, all counts are exact.
"""

import copyreg
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import partial
from typing import Final, Self

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from shuffledp.common.errors import PlanError
from shuffledp.common.messages.result import Result
from shuffledp.common.messages.submission import Outcome


class Behaviour(IntEnum):
    """A simulated user's behaviour; prepared files store it. See `every_key.toml`."""

    HONEST = 0
    """Submits once; retries with the same bytes until answered."""
    DUPLICATE = 1
    FLOODING = 2
    CONFLICT = 3
    MALFORMED = 4
    OVERSIZED = 5
    DROPPING = 6


FLOOD: Final = 100

ENVELOPES: Final = np.array([1, 1, 1, 2, 1, 1, 0], dtype=np.int64)
"""Number of envelopes prepared per user, by behaviour."""

COUNTED: Final = (Behaviour.HONEST, Behaviour.DUPLICATE, Behaviour.FLOODING, Behaviour.CONFLICT)
"""Behaviours of users whose value must be counted once."""

MISBEHAVING: Final = tuple(kind for kind in Behaviour if kind is not Behaviour.HONEST)


def assign(
    n_users: int, shares: Mapping[Behaviour, float], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Assign behaviours in random order; the last user is honest. Raises PlanError if none is."""
    kinds = np.zeros(n_users, dtype=np.uint8)
    numbers = {kind: round(share * n_users) for kind, share in shares.items()}
    misbehaving = np.repeat(list(numbers), list(numbers.values())).astype(np.uint8)
    if len(misbehaving) >= n_users:
        raise PlanError(
            f"{len(misbehaving)} of {n_users} users would misbehave; at least one must be honest"
        )
    kinds[: len(misbehaving)] = misbehaving
    kinds[:-1] = rng.permutation(kinds[:-1])
    return kinds


def is_counted(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether each user's value must be counted; shape (n_users,)."""
    return np.isin(kinds, COUNTED)


def check_users(kinds: NDArray[np.uint8], n_min: int, target_size: int) -> None:
    """Raise PlanError unless a batch with these ends is open to the last user, or can be closed."""
    stored = expected_answers(kinds)[Outcome.STORED]
    if not n_min <= stored <= target_size:
        raise PlanError(
            f"{stored:,} users would be stored; n_min and target_size allow {n_min:,} to "
            f"{target_size:,}: use --users"
        )


def expected_answers(kinds: NDArray[np.uint8]) -> Counter[Outcome]:
    """Return the expected count of each answer if none is lost and no service is overloaded."""
    users = np.bincount(kinds, minlength=len(Behaviour)).tolist()
    return Counter(
        {
            Outcome.STORED: sum(users[kind] for kind in COUNTED),
            Outcome.REPEATED: users[Behaviour.DUPLICATE] + (FLOOD - 1) * users[Behaviour.FLOODING],
            Outcome.CONFLICT: users[Behaviour.CONFLICT],
            Outcome.MALFORMED: users[Behaviour.MALFORMED] + users[Behaviour.OVERSIZED],
        }
    )


_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)

copyreg.pickle(HdrHistogram, lambda waits: (HdrHistogram.decode, (waits.encode(),)))


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of the answers to some users."""

    finished: int = 0
    acknowledged: int = 0
    """Users whose submission the shuffler acknowledged as stored."""
    answers: Counter[Outcome] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    """Final answers that no simulated user should get, by text."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed attempts that are safe to retry, by cause."""
    retries: int = 0
    lost: int = 0
    """Submissions in unanswered attempts, which may or may not be stored."""
    shed: int = 0
    """Unanswered copies of a flood, which are never retried."""
    given_up: int = 0
    dropped: int = 0
    """Users who left before sending anything, as intended."""
    first: float = float("inf")
    """Start of the first user, on the monotonic clock."""
    last: float = 0.0
    """End of the last user, or of an open loop's schedule if that is later."""
    waits: HdrHistogram = field(default_factory=partial(HdrHistogram, 1, 3_600_000_000, 3))
    """Microseconds, up to an hour, until users (in bulk: calls) were answered or gave up."""

    def add(self, other: Self) -> None:
        """Add another tally."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        for name in (entry.name for entry in fields(self) if entry.name != "waits"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first, self.last = first, last
        self.waits.add(other.waits)

    @property
    def seconds(self) -> float:
        """Seconds from `first` to `last`, including pauses between steps of a ramp."""
        return max(0.0, self.last - self.first)

    def per_second(self, number: int) -> float:
        """Return events per second; 0 for no events."""
        return number / self.seconds if number and self.seconds else 0.0

    @property
    def achieved(self) -> float:
        """Users per second who finished without giving up, including those who left as intended."""
        return self.per_second(self.finished - self.given_up)

    def milliseconds(self) -> dict[str, float]:
        """Return percentiles and maximum of the waits; empty without waits."""
        if not self.waits.get_total_count():
            return {}
        found = {f"p{p:g}": self.waits.get_value_at_percentile(p) / 1000 for p in _PERCENTILES}
        return found | {"max": self.waits.get_max_value() / 1000}


@dataclass(frozen=True, slots=True)
class CountRow:
    """A count and its expected range."""

    what: str
    counted: int
    expected_least: int
    expected_most: int

    @property
    def holds(self) -> bool:
        """Whether the count is in its range."""
        return self.expected_least <= self.counted <= self.expected_most


def compare(
    kinds: NDArray[np.uint8], seen: Tally, counts: Mapping[str, int], result: Result | None
) -> list[CountRow]:
    """
    Compare the answers to users of these kinds, and the services' counts, with the expected ones.

    Users who gave up may still be stored, so there must be none. A crashed shuffler loses the
    refusals of its last second, so after unanswered attempts these have only an upper bound.
    `counts`, by `Outcome`, are empty and `result` is None if unknown.
    """
    expected, got, lost = expected_answers(kinds), seen.answers, seen.lost
    stored, repeated = expected[Outcome.STORED], expected[Outcome.REPEATED] - seen.shed
    arrived = got[Outcome.STORED] + got[Outcome.REPEATED]
    known = (Outcome.CONFLICT, Outcome.MALFORMED, Outcome.CLOSED)
    others = sum(got[outcome] for outcome in {*got} - {*expected, *known})
    rows = [
        CountRow("stored", got[Outcome.STORED], max(0, stored - lost), stored),
        CountRow("repeated", got[Outcome.REPEATED], max(0, repeated), repeated + lost),
        *([_exact("stored or repeated", arrived, stored + repeated)] if lost else []),
        *(_exact(outcome.value, got[outcome], expected[outcome]) for outcome in known),
        _exact("other refusals", others + seen.refusals.total(), 0),
        _exact("given up", seen.given_up, 0),
        _exact("users acknowledged", seen.acknowledged, stored),
    ]
    expected |= {Outcome.REPEATED: repeated, Outcome.CLOSED: got[Outcome.CLOSED]}
    for cause, number in counts.items():
        most, slack = expected[Outcome(cause)], 0 if cause == Outcome.STORED else lost
        least = 0 if slack else most
        rows.append(CountRow(f"{cause}, by the shuffler", number, least, most + slack))
    if result is not None:
        refused = dict(result.refused)
        discarded = refused.pop("discarded", 0)
        rows += [
            _exact("users counted by the analyzer", result.n_users, stored),
            _exact("reports refused by the analyzer", sum(refused.values()), 0),
        ]
        if discarded:
            rows.append(_exact("reports discarded by the second shuffler", discarded, 0))
    return rows


def _exact(what: str, counted: int, expected: int) -> CountRow:
    return CountRow(what, counted, expected, expected)
