"""Templates of series, and the states of their rounds."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import pytest

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError, TaskError
from shuffledp.common.messages.batch import BatchState, BatchStatus, TaskState, TaskSummary
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.commands.rounds import tasks_of, with_expired
from shuffledp.deploy.tasks.schedule import check_same_time, read_series
from tests.support.keys import SHUFFLER
from tests.support.series import summary, template
from tests.support.tables import table
from tests.support.tasks import draft as small_draft
from tests.support.tokens import TOKENS

_BERLIN: Final = {"zone": '"Europe/Berlin"'}


@table(
    ("changes", "rule"),
    [
        ({"first": '"now"'}, "first must be a date and time"),
        ({"every": None, "rounds": None}, r"the table \[schedule\] of .* lacks every, rounds"),
        ({"first": "2027-01-31T12:00:00"}, "first needs a time zone"),
        ({"every": '"0 days"'}, "every is 0 seconds; it must be positive"),
        ({"every": '"-6 hours"'}, "every is -21600 seconds; it must be positive"),
        ({"every": 86400}, "every must be a whole number of minutes, hours, days or weeks"),
        ({"rounds": 0}, "rounds is 0; it must lie between 1 and 1000"),
        ({"rounds": 1001}, "rounds is 1001; it must lie between 1 and 1000"),
        ({"rounds": "1.5"}, "rounds must be a whole number"),
        ({"rounds": "1\nround = 2"}, "unknown key in .*: round; did you mean rounds"),
        ({"first": 2**40 - 86400}, "the last deadline is"),
        ({"deadline": 1_900_000_000}, "a series states no deadline"),
        ({"population": None}, "must name its population"),
        ({"people": '"some"'}, "people is 'some'; it must be one of other, same"),
        ({"zone": '"Europe/Bern"'}, "zone is 'Europe/Bern', which the time zones of this machine"),
        ({"zone": '"../zone"'}, "do not include; write one such as"),
        ({"zone": 1}, "zone is 1, which"),
        ({"zone": '"UTC"', "every": '"6 hours"'}, "every is 21600 seconds; with a zone it must be"),
        ({**_BERLIN, "first": "2027-03-28T02:30:00"}, "a local time that clocks in Europe/Berlin"),
        ({**_BERLIN, "first": "2027-10-31T02:30:00+01:00"}, "the second of two equal local times"),
        ({"zone": '"Pacific/Apia"', "first": "2011-12-29T09:00:00", "rounds": 3}, "round 2 has no"),
    ],
)
def test_a_wrong_template_is_refused(tmp_path: Path, changes: dict[str, Any], rule: str) -> None:
    """The message names the rule and the number."""
    with pytest.raises(TaskError, match=rule):
        read_series(template(tmp_path, **changes))


def test_a_draft_without_a_schedule_is_no_series(tmp_path: Path) -> None:
    """The message names the table and its keys."""
    path = template(tmp_path)
    path.write_text(path.read_text("utf-8").partition("[schedule]")[0], encoding="utf-8")

    with pytest.raises(TaskError, match=r"no table \[schedule\] with first, every and rounds"):
        read_series(path)


def test_rounds_meet_end_to_end_and_are_found_by_their_deadlines(tmp_path: Path) -> None:
    """A task of another time is none; of two tasks the released one counts."""
    series = read_series(template(tmp_path, rounds=4))
    tasks = [
        summary(series, 1, TaskState.RELEASED),
        summary(series, 1, TaskState.OVERDUE),
        summary(series, 3, TaskState.OPEN, deadline=series.deadline(3) + 1),
    ]

    assert [0, 1, 1, 2, 4, 5] == [
        series.open_round(1_700_000_000 + seconds)
        for seconds in (-0.5, 0.0, 86_399.5, 86_400.0, 4 * 86_400 - 0.5, 4 * 86_400)
    ]
    assert [1_700_086_400, 1_700_172_800] == [series.draft_of(n).deadline for n in (1, 2)]
    rounds = series.rounds(tasks, series.deadline(2))
    assert ["released", "missed", "due", "planned"] == [each.state for each in rounds]


@table(
    ("zone", "first", "every", "lengths"),
    [
        ("Europe/Berlin", "2026-03-27T09:00:00", "1 day", [24, 23, 24, 24]),
        ("Europe/Berlin", "2026-10-23T09:00:00", "1 day", [24, 25, 24, 24]),
        ("Europe/Berlin", "2026-03-27T02:30:00", "1 day", [24, 24, 23, 24]),
        ("Europe/Berlin", "2026-10-23T02:30:00", "1 day", [24, 24, 25, 24]),
        ("America/New_York", "2026-10-19T00:00:00", "1 week", [168, 169, 168, 168]),
        ("America/New_York", "2027-03-01T23:00:00-05:00", "2 weeks", [335, 336, 336, 336]),
        ("Australia/Lord_Howe", "2026-10-03T02:15:00", "1 day", [24, 23.5, 24, 24]),
        ("Asia/Kolkata", "2026-10-23T09:00:00", "1 week", [168] * 4),
    ],
)
def test_rounds_at_a_local_time_are_there_once_when_clocks_change(
    tmp_path: Path, zone: str, first: str, every: str, lengths: list[float]
) -> None:
    """
    Each opens at the local time of the first, when the one before ends: none is skipped or doubled.

    A local time that is skipped that day is moved on, and of two equal ones it is the first.
    """
    given = {"zone": f'"{zone}"', "first": first, "every": f'"{every}"', "rounds": 4}
    series, local = read_series(template(tmp_path, **given)), ZoneInfo(zone)
    ends = [series.deadline(number) for number in range(5)]
    seen = [series.open_round(time) for time in range(ends[0] - 900, ends[-1] + 900, 900)]
    clocks = [datetime.fromtimestamp(end, local).time() for end in ends]

    assert lengths == [(end - start) / 3600 for start, end in pairwise(ends)]
    assert [0, *(n for n, hours in enumerate(lengths, 1) for _ in range(int(4 * hours))), 5] == seen
    assert clocks[0] == clocks[-1]
    assert 1 >= sum(clock != clocks[0] for clock in clocks)


def test_a_named_series_counts_its_rounds(tmp_path: Path) -> None:
    """Every task of it has the name and the number, and equals the template in all else."""
    series = read_series(template(tmp_path, series='"daily"'))
    first, third = (_task(series.draft_of(number)) for number in (1, 3))

    assert [("daily", 1), ("daily", 3)] == [(each.series, each.round) for each in (first, third)]
    assert first.asks_like(replace(third, deadline=first.deadline))
    assert first.asks_like(replace(first, purpose="Planning of bus lines"))
    assert not first.asks_like(replace(first, series="weekly"))
    assert 0 == read_series(template(tmp_path)).draft_of(3).round


@pytest.mark.parametrize("seconds", [-35 * 60, -61, 61, 35 * 60])
def test_a_publisher_and_an_analyzer_with_different_clocks_publish_no_round(seconds: int) -> None:
    """The message has both times."""
    times = r"says 2026-\d\d-\d\d .* UTC, the analyzer's 2026-11-28 12:00:00 UTC; .* 60 seconds"
    with pytest.raises(TaskError, match=times):
        check_same_time(1_795_867_200.0 + seconds, 1_795_867_200)


@pytest.mark.parametrize("seconds", [-60, 0, 60])
def test_clocks_that_agree_to_a_minute_are_the_same(seconds: int) -> None:
    """A publisher's timer may run a little early or late."""
    check_same_time(1_795_867_200.0 + seconds, 1_795_867_200)


@dataclass(frozen=True)
class _Published:
    """An analyzer that has published each draft."""

    drafts: tuple[TaskDraft, ...]

    async def tasks(self) -> list[TaskSummary]:
        return [self._of(draft)[1] for draft in self.drafts]

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        [found] = [
            self._of(each) for each in self.drafts if self._of(each)[1].task_digest == digest
        ]
        return found

    def _of(self, draft: TaskDraft) -> tuple[SignedTask, TaskSummary]:
        signed = SHUFFLER.sign(_task(draft).to_bytes())
        listed = {
            **{name: getattr(_task(draft), name) for name in _LISTED},
            "task_digest": signed.digest(),
            "state": TaskState.OPEN,
            "n_users": 0,
        }
        return signed, TaskSummary(**listed, failure="")


@cache
def _task(draft: TaskDraft) -> Task:
    return complete(replace(draft, shuffler_key=_KEY), analyzer_key=_KEY[:32], nonce=b"n" * 32)


_LISTED: Final = (*("protocol", "domain_size", "population"), *("n_min", "target_size", "deadline"))
_KEY: Final = small_draft().shuffler_key
_LABELS: Final = tuple(map(str, range(20)))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"tokens": TOKENS}, True),
        ({"labels": _LABELS}, False),
        ({"local_epsilon": 1.5}, False),
        ({"dummies_per_user": 3}, False),
        ({"buckets": 11}, False),
        ({"budget_epsilon": 5.0}, False),
        ({"budget_delta": 2e-5}, False),
        ({"n_min": 999}, False),
        ({"delta": 2e-6}, False),
        ({"assumed_honest_fraction": 0.9}, False),
        ({"protocol": "murs", "buckets": 0, "dummies_per_user": 0}, False),
        ({"population": "weekly"}, False),
        ({"deadline": 1_700_086_401}, False),
        ({"edges": EdgesSpec(low=0.0, high=20.0, buckets=20)}, False),
        ({"breakdown": BreakdownSpec(attribute="sex", groups=("a", "b"))}, False),
    ],
)
async def test_a_round_equals_its_template_in_all_that_this_fixes(
    tmp_path: Path, changes: dict[str, Any], *, found: bool
) -> None:
    """Another task of the population and deadline is none, however little it differs."""
    series = read_series(template(tmp_path))
    analyzer: Any = _Published((replace(series.draft, **changes),))

    assert found == bool(await tasks_of(series, analyzer))


@table(
    ("batch", "state"),
    [
        (None, "expired"),
        (BatchState.EXPIRED, "expired"),
        (BatchState.DROPPED, "expired"),
        (BatchState.UNCONFIRMED, "expired"),
        (BatchState.SENT, "overdue"),
        (BatchState.COLLECTING, "overdue"),
        (BatchState.CLOSED, "overdue"),
        (BatchState.QUARANTINED, "overdue"),
        ("away", "overdue"),
    ],
)
async def test_an_overdue_round_ends_once_its_batch_has_expired(
    tmp_path: Path, batch: BatchState | Literal["away"] | None, state: str
) -> None:
    """Others may still be delivered; the shuffler is asked about overdue rounds alone."""
    series = read_series(template(tmp_path, rounds=3))
    tasks = [summary(series, 1, TaskState.OVERDUE), summary(series, 2, TaskState.RELEASED)]
    asked = []

    class Shuffler:
        async def status_or_none(self, digest: TaskDigest) -> BatchStatus | None:
            asked.append(digest)
            if batch == "away":
                raise PeerError(batch)
            known: Any = {"n_users": 0, "n_min": 1000, "shuffle_seconds": 0.0}
            return None if batch is None else BatchStatus(state=batch, **known)

    shuffler: Any = Shuffler()
    rounds = await with_expired(series.rounds(tasks, series.deadline(3) - 1), shuffler)
    assert [state, "released", "due"] == [each.state for each in rounds]
    assert [tasks[0].task_digest] == asked
