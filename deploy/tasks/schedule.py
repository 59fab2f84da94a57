"""Series of tasks: a draft with a schedule, from which each round's task is published."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from shuffledp.common.dates import utc
from shuffledp.common.errors import TaskError
from shuffledp.common.limits import MAX_UNIX_TIME, unknown_keys
from shuffledp.common.messages.batch import TaskState, TaskSummary
from shuffledp.common.runtime import confirmed_clock, validation
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.specs import check_int_range
from shuffledp.deploy.tasks import drafts
from shuffledp.deploy.terminal.durations import DAY, parse_duration

MAX_ROUNDS: Final = 1000
"""Maximum rounds of a series: the rounding error of composition is checked for as many releases."""
_LATEST_LOCAL: Final = 2**37
"""Latest deadline in a time zone: calendars end with the year 9999."""
_KEYS: Final = ("first", "every", "rounds")
_OPTIONAL: Final = ("zone", "people")
RoundState = TaskState | Literal["planned", "due", "missed", "expired"]
"""The state of a round's task, or `expired`; without one `planned`, `due` (open now), `missed`."""
People = Literal["other", "same"]
"""Whether other people answer each round, so that smoothed shares are the population's, or the same
people all rounds: then they are these respondents'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRound:
    """A round of a series."""

    number: int
    deadline: int
    state: RoundState
    task: TaskSummary | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A draft and the times of its rounds, numbered from 1, in seconds since 1970 UTC."""

    draft: TaskDraft
    """The first round's, without others' keys."""
    first: int
    """When the first round opens."""
    every: int
    """Seconds from a round's opening to its deadline, when the next round opens."""
    n_rounds: int
    zone: str = ""
    """Time zone in which `every` counts whole days, so that rounds open at one local time."""
    people: People = "other"

    def __post_init__(self) -> None:
        check_int_range("first", self.first, 0, MAX_UNIX_TIME)
        if self.every < 1:
            raise TaskError(f"every is {self.every} seconds; it must be positive")
        check_int_range("rounds", self.n_rounds, 1, MAX_ROUNDS)
        last = self.first + self.n_rounds * self.every
        latest = _LATEST_LOCAL if self.zone else MAX_UNIX_TIME
        check_int_range("the last deadline", last, 0, latest)
        if self.zone:
            self._check_local_times()

    def _check_local_times(self) -> None:
        """Raise TaskError unless rounds are whole days and none of them is empty."""
        if self.every % DAY:
            raise TaskError(f"every is {self.every} seconds; with a zone it must be whole days")
        if self.deadline(0) != self.first:
            raise TaskError(f"first is the second of two equal local times in {self.zone}")
        ends = map(self.deadline, range(self.n_rounds + 1))
        for number, (opening, end) in enumerate(pairwise(ends), 1):
            if end <= opening:
                raise TaskError(f"round {number} has no time: {self.zone} skips its day")

    def deadline(self, number: int) -> int:
        """
        Return the deadline of a round, which is the opening of the next.

        In a time zone it has the local time of the first opening, so some rounds are an hour longer
        or shorter. Of two equal local times it is the first; one that clocks skip is moved on by
        what they skip.
        """
        if not self.zone:
            return self.first + number * self.every
        opening = datetime.fromtimestamp(self.first, _time_zone(self.zone))
        return int((opening + timedelta(seconds=number * self.every)).timestamp())  # local time

    def open_round(self, now: float) -> int:
        """Return the number of the round open at `now`; 0 before all, n_rounds + 1 after all."""
        return bisect_right(range(self.n_rounds + 1), now, key=self.deadline)

    def draft_of(self, number: int) -> TaskDraft:
        """Return the draft of a round."""
        counted = number if self.draft.series else 0
        return replace(self.draft, deadline=self.deadline(number), round=counted)

    def rounds(self, tasks: Iterable[TaskSummary], now: float) -> tuple[SeriesRound, ...]:
        """
        Return every round with its task: of the series' `tasks`, the one with its deadline.

        Of several, a released one counts.
        """
        current, rounds = self.open_round(now), []
        released_last = sorted(tasks, key=lambda task: task.state is TaskState.RELEASED)
        found = {task.deadline: task for task in released_last}
        for number in range(1, self.n_rounds + 1):
            task = found.get(deadline := self.deadline(number))
            state: RoundState = "due" if number == current else "planned"
            if task or number < current:
                state = task.state if task else "missed"
            rounds.append(SeriesRound(number=number, deadline=deadline, state=state, task=task))
        return tuple(rounds)


def check_same_time(own: float, analyzers: float) -> None:
    """Raise TaskError if the publisher's clock could open a round while the last one collects."""
    if abs(own - analyzers) > confirmed_clock.TOLERANCE:
        raise TaskError(
            f"this machine's clock says {utc(own)}, the analyzer's {utc(analyzers)}; to publish a "
            f"round they must agree to {confirmed_clock.TOLERANCE:.0f} seconds: set the wrong one"
        )


def read_series(path: Path) -> Series:
    """Read a draft with a table [schedule], a population and no deadline; raise TaskError."""
    keys = validation.read_toml(path, TaskError, max_bytes=drafts.MAX_DRAFT_BYTES)
    table = keys.pop("schedule", None)
    if not isinstance(table, dict):
        raise TaskError(f"{path} has no table [schedule] with first, every and rounds")
    if "deadline" in keys:
        raise TaskError("a series states no deadline: each round ends when the next one opens")
    if not keys.get("population"):
        raise TaskError("a series must name its population, whose budget all rounds share")
    known = _KEYS + _OPTIONAL
    if unknown := set(table) - {*known}:
        raise TaskError(unknown_keys(unknown, known, "key in [schedule]", str(path)))
    drafts.check_keys(table, _KEYS, "schedule", path)
    zone, people = table.get("zone", ""), table.get("people", "other")
    if people not in get_args(People):
        raise TaskError(f"people is {people!r}; it must be one of {', '.join(get_args(People))}")
    first = _first(table["first"], zone)
    every = parse_duration("every", table["every"])
    draft = drafts.read(path, keys={**keys, "deadline": first + every})
    rounds = {"first": first, "every": every, "n_rounds": table["rounds"]}
    series = Series(draft=draft, zone=zone, people=people, **rounds)
    return replace(series, draft=series.draft_of(1))


def _first(moment: object, zone: object) -> int:
    """Return the time of the first opening; without an offset it is a local time in the zone."""
    local = None if zone == "" else _time_zone(zone)
    if local and isinstance(moment, datetime) and moment.tzinfo is None:
        moment = moment.replace(tzinfo=local)
        if datetime.fromtimestamp(moment.timestamp(), local) != moment:
            raise TaskError(f"first is a local time that clocks in {zone} skip")
    return drafts.unix_time("first", moment)


def _time_zone(name: object) -> ZoneInfo:
    """Return a time zone of this machine's database; raise TaskError."""
    try:
        return ZoneInfo(name if isinstance(name, str) else "")
    except (LookupError, OSError, ValueError) as error:  # absent, no file, no name
        raise TaskError(
            f"zone is {name!r}, which the time zones of this machine do not include; write one "
            "such as Europe/Berlin, or install tzdata"
        ) from error
