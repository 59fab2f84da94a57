from collections import Counter

import pytest

from common.messages.submission import Outcome
from deploy.load.tally import Tally, latencies


def _waits(*microseconds: int) -> bytes:
    found = latencies()
    for one in microseconds:
        found.record_value(one)
    return bytes(found.encode())


def test_tallies_of_several_processes_add_up() -> None:
    """Numbers, causes, waits, and the time from the first to the last."""
    total = Tally(
        finished=2, answers=Counter({Outcome.STORED: 2}), first=5.0, last=8.0, waits=_waits(1000)
    )
    total.add(Tally(finished=3, answers=Counter({Outcome.STORED: 1}), first=4.0, last=6.0, lost=1))
    total.add(Tally(failures=Counter({"no room": 7}), waits=_waits(1000, 9000)))

    assert (5, 3, 1, 7) == (
        total.finished,
        total.answers[Outcome.STORED],
        total.lost,
        total.failures["no room"],
    )
    assert 4.0 == total.seconds
    assert 1.25 == total.per_second(total.finished)
    assert {"p50": 1.0, "max": 9.0} == pytest.approx(
        {name: total.milliseconds()[name] for name in ("p50", "max")}, rel=1e-3
    )


def test_who_gave_up_is_through_but_not_answered() -> None:
    """And makes no rate."""
    assert 3 == Tally(finished=5, given_up=2).answered


def test_nothing_has_no_rate_and_no_waits() -> None:
    """And divides by nothing."""
    assert 0.0 == Tally().per_second(0)
    assert {} == Tally().milliseconds()
