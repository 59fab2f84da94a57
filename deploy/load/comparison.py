"""
The answers that simulated users must have got, beside what was counted. Pure.

An attempt without an answer leaves open whether its submission was stored: then the next attempt
is answered `repeated`, and the service may count one more. Each such attempt widens the range of
every count by one; where every attempt was answered, all counts are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.messages.submission import Outcome
from deploy.load.behaviour import expected_answers
from deploy.load.sender import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """One count beside the range that it must lie in."""

    what: str
    least: int
    most: int
    counted: int

    @property
    def holds(self) -> bool:
        """Whether the count lies in its range."""
        return self.least <= self.counted <= self.most

    @property
    def expected(self) -> str:
        """The number or range as text."""
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"


def answered(kinds: NDArray[np.uint8], seen: Tally) -> list[CountRow]:
    """
    Compare the answers of users of these behaviours with what they must be.

    Users who gave up may be stored without an answer; then nothing is exact, and a row says so.
    """
    expected = expected_answers(kinds)
    stored, repeated = expected[Outcome.STORED], expected[Outcome.REPEATED] - seen.shed
    got = seen.answers
    rows = [
        _row("stored", got[Outcome.STORED], stored - seen.lost, stored),
        _row("repeated", got[Outcome.REPEATED], repeated, repeated + seen.lost),
    ]
    if seen.lost:
        both = got[Outcome.STORED] + got[Outcome.REPEATED]
        rows.append(_row("stored or repeated", both, stored + repeated))
    known = (Outcome.CONFLICT, Outcome.MALFORMED, Outcome.CLOSED)
    others = sum(got[outcome] for outcome in {*got} - {*expected, *known})
    return [
        *rows,
        *(_row(outcome.value, got[outcome], expected[outcome]) for outcome in known),
        _row("other refusals", others + seen.refusals.total(), 0),
        _row("given up", seen.given_up, 0),
        _row("users acknowledged", seen.acknowledged, stored),
    ]


def counted_by_service(
    kinds: NDArray[np.uint8], seen: Tally, counts: Mapping[str, int]
) -> list[CountRow]:
    """
    Compare with the shuffler's own counts of this batch.

    A shuffler that crashed forgets what it refused in its last second, never what it stored: where
    attempts were lost, only an upper bound of its refusals is known. `closed` is compared with
    users' answers; causes that no simulated user gives must not occur.

    Args:
        kinds: Behaviours of all users who came.
        seen: Their answers.
        counts: By cause, as an `Outcome` names it; `stored` is the number of users in the batch.
    """
    expected = expected_answers(kinds)
    expected[Outcome.REPEATED] -= seen.shed
    expected[Outcome.CLOSED] = seen.answers[Outcome.CLOSED]
    rows = []
    for cause, number in counts.items():
        wanted, lost = expected[Outcome(cause)], 0 if cause == Outcome.STORED else seen.lost
        least = 0 if lost else wanted
        rows.append(_row(f"{cause}, by the shuffler", number, least, wanted + lost))
    return rows


def counted_by_analyzer(kinds: NDArray[np.uint8], n_users: int, refused: int) -> list[CountRow]:
    """Compare with a released result: every user once, and no report refused."""
    return [
        _row("users counted by the analyzer", n_users, expected_answers(kinds)[Outcome.STORED]),
        _row("reports refused by the analyzer", refused, 0),
    ]


def _row(what: str, counted: int, least: int, most: int | None = None) -> CountRow:
    """Make a row; without `most` the count must be exact."""
    top = least if most is None else most
    return CountRow(what=what, least=max(0, least), most=top, counted=counted)
