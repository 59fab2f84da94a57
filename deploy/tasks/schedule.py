"""Series of tasks: a draft with a schedule, from which each round's task is published."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from common.dates import utc
from common.errors import TaskError
from common.limits import MAX_UNIX_TIME, unknown_keys
from common.messages.batch import TaskState, TaskSummary
from common.runtime.confirmed_clock import TOLERANCE
from common.runtime.validation import read_toml
from common.task.draft import TaskDraft
from common.task.specs import check_int_range
from deploy.tasks import drafts
from deploy.terminal.durations import parse_duration

MAX_ROUNDS: Final = 1000
"""Maximum rounds of a series: the rounding error of composition is checked for as many releases."""
_KEYS: Final = ("first", "every", "rounds")
RoundState = TaskState | Literal["planned", "due", "missed", "expired"]
"""The state of a round's task, or `expired`; without one `planned`, `due` (open now), `missed`."""


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

    def __post_init__(self) -> None:
        check_int_range("first", self.first, 0, MAX_UNIX_TIME)
        if self.every < 1:
            raise TaskError(f"every is {self.every} seconds; it must be positive")
        check_int_range("rounds", self.n_rounds, 1, MAX_ROUNDS)
        check_int_range("the last deadline", self.deadline(self.n_rounds), 0, MAX_UNIX_TIME)

    def deadline(self, number: int) -> int:
        """Return the deadline of a round, which is the opening of the next."""
        return self.first + number * self.every

    def open_round(self, now: float) -> int:
        """Return the number of the round open at `now`; 0 before all, n_rounds + 1 after all."""
        return min(max(0, math.floor((now - self.first) / self.every) + 1), self.n_rounds + 1)

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
    if abs(own - analyzers) > TOLERANCE:
        raise TaskError(
            f"this machine's clock says {utc(own)}, the analyzer's {utc(analyzers)}; to publish a "
            f"round they must agree to {TOLERANCE:.0f} seconds: set the wrong one"
        )


def read_series(path: Path) -> Series:
    """Read a draft with a table [schedule], a population and no deadline; raise TaskError."""
    keys = read_toml(path, TaskError, max_bytes=drafts.MAX_DRAFT_BYTES)
    table = keys.pop("schedule", None)
    if not isinstance(table, dict):
        raise TaskError(f"{path} has no table [schedule] with first, every and rounds")
    if "deadline" in keys:
        raise TaskError("a series states no deadline: each round ends when the next one opens")
    if not keys.get("population"):
        raise TaskError("a series must name its population, whose budget all rounds share")
    if unknown := set(table) - {*_KEYS}:
        raise TaskError(unknown_keys(unknown, _KEYS, "key in [schedule]", str(path)))
    drafts.check_keys(table, _KEYS, "schedule", path)
    first = drafts.unix_time("first", table["first"])
    every = parse_duration("every", table["every"])
    draft = drafts.read(path, keys={**keys, "deadline": first + every})
    series = Series(draft=draft, first=first, every=every, n_rounds=table["rounds"])
    return replace(series, draft=series.draft_of(1))
