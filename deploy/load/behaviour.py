"""
A load run's users: their behaviours and arrivals, the answers they must get, and counts. Pure.

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
from shuffledp.common.runtime.access import CallKind
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY
from shuffledp.deploy.load.scenario import LoadScenario, Ramp, Sending


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
_DEFAULT_USERS: Final = 1000
_USERS_IN_FLIGHT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan(Sending):
    """The simulated users, and how they arrive and send; without rates, in a closed loop."""

    n_users: int = _DEFAULT_USERS
    dataset: str = IPUMS_1940_CITY
    seed: int | None = None
    shares: Mapping[Behaviour, float] = field(default_factory=dict)
    ramp: Ramp | None = None

    @classmethod
    def of(cls, scenario: LoadScenario, people: int | None = None) -> Self:
        """Return the plan of a scenario, for a file of so many people."""
        ramp, shares = scenario.ramp, vars(scenario.misbehaving)
        climbing = 0 if ramp is None else sum(count for _, count in ramp.phases) + 1
        return cls(
            **vars(scenario.sending),
            n_users=scenario.people.users or climbing or people or _DEFAULT_USERS,
            dataset=scenario.people.dataset,
            seed=scenario.people.seed,
            shares={kind: shares[kind.name.lower()] for kind in MISBEHAVING},
            ramp=ramp,
        )

    def draw_kinds(self, rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
        """
        Draw the users' behaviours, (n_users,): as many of each by any generator, the last honest.

        Raises PlanError if nobody is honest.
        """
        rng, n_users = rng or np.random.default_rng(self.seed), self.n_users
        numbers = {kind: round(share * n_users) for kind, share in self.shares.items()}
        if (misbehaving := sum(numbers.values())) >= n_users:
            raise PlanError(
                f"{misbehaving} of {n_users} users would misbehave; at least one must be honest"
            )
        numbers[Behaviour.HONEST] = n_users - 1 - misbehaving
        kinds = np.repeat([*numbers], [*numbers.values()])
        return np.append(rng.permutation(kinds), Behaviour.HONEST).astype(np.uint8)

    @property
    def in_flight(self) -> int:
        """Users or calls in flight in a closed loop."""
        bulk = CallKind.BULK.value.peer_calls * self.processes
        default = _USERS_IN_FLIGHT if self.mode == "users" else bulk
        return default if self.concurrency is None else self.concurrency

    @property
    def is_open(self) -> bool:
        """Whether users arrive on a schedule, independent of the services' speed."""
        return self.rate is not None or self.ramp is not None


def arrivals(
    count: int, rate: float, rng: np.random.Generator, *, burst: int | None = None
) -> NDArray[np.float64]:
    """
    Draw the arrival times of an open loop: ascending seconds from the start, below count / rate.

    No user waits for another's answer, and latency counts from the scheduled time. Measuring from a
    delayed start would miss the longest waits (coordinated omission).

    Arrivals are a Poisson process conditioned on its count: uniform times, so the rate is exact.
    With `burst`, groups of `burst` users arrive at once, at even intervals.
    """
    if burst is not None:
        return np.asarray(np.arange(count) // burst * (burst / rate), dtype=np.float64)
    return np.sort(rng.random(count)) * (count / rate)


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
