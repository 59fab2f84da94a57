"""Templates of series, and the states of their rounds."""

from pathlib import Path
from typing import Any

import pytest

from common.errors import TaskError
from common.messages.batch import TaskState
from deploy.tasks.schedule import check_same_time, read_series
from tests.support.series import summary, template


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"first": '"now"'}, "first must be a date and time"),
        ({"every": None, "rounds": None}, r"the table \[schedule\] of .* lacks every, rounds"),
        ({"first": "2027-01-31T12:00:00"}, "first needs a time zone"),
        ({"every": '"0 days"'}, "every is 0 seconds; it must be positive"),
        ({"every": '"-6 hours"'}, "every is -21600 seconds; it must be positive"),
        ({"every": 86400}, "every must be a whole number of minutes, hours or days"),
        ({"rounds": 0}, "rounds is 0; it must lie between 1 and 1000"),
        ({"rounds": 1001}, "rounds is 1001; it must lie between 1 and 1000"),
        ({"rounds": "1.5"}, "rounds must be a whole number"),
        ({"rounds": "1\nround = 2"}, "unknown key in .*: round; did you mean rounds"),
        ({"first": 2**40 - 86400}, "the last deadline is"),
        ({"deadline": 1_900_000_000}, "a series states no deadline"),
        ({"population": None}, "must name its population"),
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
    """A task of another population or time is none; of two tasks the released one counts."""
    series = read_series(template(tmp_path, rounds=4))
    tasks = [
        summary(series, 1, TaskState.RELEASED),
        summary(series, 1, TaskState.OVERDUE),
        summary(series, 2, TaskState.OPEN, population="other"),
        summary(series, 3, TaskState.OPEN, deadline=series.deadline(3) + 1),
    ]

    assert [0, 1, 1, 2, 4, 5] == [
        series.open_round(1_700_000_000 + seconds)
        for seconds in (-0.5, 0.0, 86_399.5, 86_400.0, 4 * 86_400 - 0.5, 4 * 86_400)
    ]
    assert [1_700_086_400, 1_700_172_800] == [series.draft_of(n).deadline for n in (1, 2)]
    rounds = series.rounds(tasks, series.deadline(2))
    assert ["released", "missed", "due", "planned"] == [each.state for each in rounds]
    with pytest.raises(TaskError, match="has the deadline of round 2 but the protocol murs"):
        series.rounds([summary(series, 2, TaskState.OPEN, protocol="murs")], 0.0)
    with pytest.raises(TaskError, match="but the protocol od-hp over 7 items; give one"):
        series.rounds([summary(series, 2, TaskState.OPEN, domain_size=7)], 0.0)


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
