"""
Compare simulated users' answers and the services' counts with the expected ones. Pure.

An attempt without an answer leaves open whether its submission was stored: then the next attempt
is answered `repeated`, and the service may count one more. Each such attempt widens the range of
every count by one; where every attempt was answered, all counts are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.messages.result import Result
from common.messages.submission import Outcome
from deploy.load.behaviour import expected_answers
from deploy.load.sender import Tally


@dataclass(frozen=True, slots=True)
class CountRow:
    """One count beside the range that it must lie in."""

    what: str
    counted: int
    expected_least: int
    expected_most: int

    @property
    def holds(self) -> bool:
        """Whether the count lies in its range."""
        return self.expected_least <= self.counted <= self.expected_most


def compare(
    kinds: NDArray[np.uint8], seen: Tally, counts: Mapping[str, int], result: Result | None
) -> list[CountRow]:
    """
    Compare users' answers and the services' counts with the expected ones.

    Users who gave up may be stored without an answer; then nothing is exact, and a row says so.
    A shuffler that crashed forgets what it refused in its last second, never what it stored: where
    attempts were lost, only an upper bound of its refusals is known. Its `closed` is compared with
    users' answers; causes that no simulated user gives must not occur.

    Args:
        kinds: Behaviours of all users who came.
        seen: Their answers.
        counts: The shuffler's, by cause as an `Outcome` names it; `stored` is the number of users
            in the batch. Empty if unknown.
        result: The released one: it counts every user once, and refuses no report. None if
            unknown.
    """
    expected, got, lost = expected_answers(kinds), seen.answers, seen.lost
    stored, repeated = expected[Outcome.STORED], expected[Outcome.REPEATED] - seen.shed
    arrived = got[Outcome.STORED] + got[Outcome.REPEATED]
    rows = [
        CountRow("stored", got[Outcome.STORED], max(0, stored - lost), stored),
        CountRow("repeated", got[Outcome.REPEATED], max(0, repeated), repeated + lost),
        *([_exact("stored or repeated", arrived, stored + repeated)] if lost else []),
    ]
    known = (Outcome.CONFLICT, Outcome.MALFORMED, Outcome.CLOSED)
    rows += [_exact(outcome.value, got[outcome], expected[outcome]) for outcome in known]
    others = sum(got[outcome] for outcome in {*got} - {*expected, *known})
    rows += [
        _exact("other refusals", others + seen.refusals.total(), 0),
        _exact("given up", seen.given_up, 0),
        _exact("users acknowledged", seen.acknowledged, stored),
    ]
    expected |= {Outcome.REPEATED: repeated, Outcome.CLOSED: got[Outcome.CLOSED]}
    for cause, number in counts.items():
        wanted, spare = expected[Outcome(cause)], 0 if cause == Outcome.STORED else lost
        least = 0 if spare else wanted
        rows.append(CountRow(f"{cause}, by the shuffler", number, least, wanted + spare))
    if result is not None:
        refused = sum(result.refused.values())
        rows += [
            _exact("users counted by the analyzer", result.n_users, stored),
            _exact("reports refused by the analyzer", refused, 0),
        ]
    return rows


def _exact(what: str, counted: int, expected: int) -> CountRow:
    return CountRow(what, counted, expected, expected)
