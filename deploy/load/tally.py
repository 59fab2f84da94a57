"""What the simulated users saw: answers, failures, and how long they waited."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Self

from hdrh.histogram import HdrHistogram

from common.messages.submission import Outcome

_SHORTEST, _LONGEST, _DIGITS = 1, 3_600_000_000, 3
"""Of latencies, microseconds: an hour at most, three digits of each."""
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


def latencies() -> HdrHistogram:
    """Give an empty histogram of microseconds."""
    return HdrHistogram(_SHORTEST, _LONGEST, _DIGITS)


@dataclass(slots=True, kw_only=True)
class Tally:
    """Of some users; several are added up."""

    finished: int = 0
    """Users who are through, whatever became of them."""
    acknowledged: int = 0
    """Users whose submission is stored, by the shuffler's word."""
    answers: Counter[Outcome] = field(default_factory=Counter)
    """Of each submission that was answered for good."""
    reports: int = 0
    """Sealed reports of what was answered `stored`."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Answers for good that no simulated user should get, by what they say."""
    failures: Counter[str] = field(default_factory=Counter)
    """Attempts that failed and could be made again, by cause."""
    retries: int = 0
    """Attempts that were made again."""
    lost: int = 0
    """Submissions of attempts without an answer: they may have been stored, or not."""
    shed: int = 0
    """Copies of a flood that were not answered, and that nobody sends again."""
    given_up: int = 0
    """Users who ran out of patience."""
    dropped: int = 0
    """Users who left before they sent anything, as they were meant to."""
    first: float = float("inf")
    """
    When the first was to begin, and when the last was through, on one monotonic clock. Of an open
    loop, the schedule's end if that is later.
    """
    last: float = 0.0
    waits: bytes = b""
    """Users' (in bulk, calls') waits until they were answered or gave up, an encoded histogram of
    microseconds."""

    def add(self, other: Self) -> None:
        """Add what others saw."""
        for name in (
            *("finished", "acknowledged", "reports", "retries", "lost", "shed", "given_up"),
            "dropped",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.answers.update(other.answers)
        self.refusals.update(other.refusals)
        self.failures.update(other.failures)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        if other.waits:
            both = self.histogram()
            both.decode_and_add(other.waits)
            self.waits = both.encode()

    def histogram(self) -> HdrHistogram:
        """Give the waits."""
        found = latencies()
        if self.waits:
            found.decode_and_add(self.waits)
        return found

    @property
    def answered(self) -> int:
        """Users who are through and did not give up; those who left as they were meant to, too."""
        return self.finished - self.given_up

    @property
    def seconds(self) -> float:
        """
        From the first user's beginning to the last one's end, or to that of the schedule if it is
        later. Of a ramp it holds the pauses between its steps too.
        """
        return max(0.0, self.last - self.first)

    def per_second(self, number: int) -> float:
        """Give a rate; 0 of nothing."""
        return number / self.seconds if number and self.seconds else 0.0

    def milliseconds(self) -> dict[str, float]:
        """Give percentiles of the waits, and the longest."""
        waits = self.histogram()
        if not waits.get_total_count():
            return {}
        found = {f"p{p:g}": waits.get_value_at_percentile(p) / 1000 for p in PERCENTILES}
        return found | {"max": waits.get_max_value() / 1000}
