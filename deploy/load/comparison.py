"""
What the simulated users must have been answered, beside what was counted. Pure.

An attempt without an answer leaves open whether its submission was stored: then the next attempt
is answered `repeated`, and whoever counts at the service counts one more. Each such attempt gives
every count that much room, and none where every attempt was answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.messages.result import RefusalCause
from common.messages.submission import Outcome
from deploy.load.behaviour import expected_answers
from deploy.load.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One count: what it must be, and what it is."""

    what: str
    least: int
    most: int
    counted: int

    @property
    def holds(self) -> bool:
        """The count is one that it may be."""
        return self.least <= self.counted <= self.most

    @property
    def expected(self) -> str:
        """The number, or the range."""
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"


KNOWN: Final = (Outcome.CONFLICT, Outcome.MALFORMED)
"""Refusals that a simulated user may earn."""


def answered(kinds: NDArray[np.uint8], seen: Tally) -> list[Row]:
    """
    Compare what users of these behaviours were answered with what they must be.

    Users who gave up were perhaps stored and were not told; then nothing is exact any more, and
    a row says so.
    """
    expected = expected_answers(kinds)
    stored, repeated = expected[Outcome.STORED], expected[Outcome.REPEATED] - seen.shed
    got = seen.answers
    rows = [
        _row("stored", stored - seen.lost, stored, got[Outcome.STORED]),
        _row("repeated", repeated, repeated + seen.lost, got[Outcome.REPEATED]),
    ]
    if seen.lost:
        both = got[Outcome.STORED] + got[Outcome.REPEATED]
        rows.append(_row("stored or repeated", stored + repeated, stored + repeated, both))
    rows += [_exactly(o.value, expected[o], got[o]) for o in KNOWN]
    others = sum(
        number
        for outcome, number in got.items()
        if outcome not in expected and outcome is not Outcome.CLOSED
    )
    return [
        *rows,
        _exactly(Outcome.CLOSED.value, 0, got[Outcome.CLOSED]),
        _exactly("other refusals", 0, others + seen.refusals.total()),
        _exactly("given up", 0, seen.given_up),
        _exactly("users acknowledged", stored, seen.acknowledged),
    ]


def counted_by_service(
    kinds: NDArray[np.uint8], seen: Tally, counts: Mapping[str, int]
) -> list[Row]:
    """
    Compare with what the shuffler itself counted of this batch.

    One that crashed has forgotten what it refused in its last second, never what it stored: where
    attempts were lost, only the most that it may have refused is known. `closed` is compared with
    what users were answered; of causes that no simulated user gives, there must be none.

    Args:
        kinds: Behaviours of all who came.
        seen: What they saw.
        counts: By cause, as an `Outcome` names it; causes that are not there are not compared.
            `stored` is how many users the batch holds.
    """
    expected = expected_answers(kinds)
    expected[Outcome.REPEATED] -= seen.shed
    expected[Outcome.CLOSED] = seen.answers[Outcome.CLOSED]
    return [
        _row(
            f"{cause}, by the shuffler",
            expected[Outcome(cause)] if cause == Outcome.STORED or not seen.lost else 0,
            expected[Outcome(cause)] + (0 if cause == Outcome.STORED else seen.lost),
            number,
        )
        for cause, number in counts.items()
    ]


def counted_by_analyzer(
    kinds: NDArray[np.uint8], n_users: int, refused: Mapping[RefusalCause, int]
) -> list[Row]:
    """Compare with a released result: every user once, and no report refused."""
    stored = expected_answers(kinds)[Outcome.STORED]
    return [
        _exactly("users counted by the analyzer", stored, n_users),
        _exactly("reports refused by the analyzer", 0, sum(refused.values())),
    ]


def all_hold(rows: Sequence[Row]) -> bool:
    """Say whether every count is one that it may be."""
    return all(row.holds for row in rows)


def _exactly(what: str, expected: int, counted: int) -> Row:
    return _row(what, expected, expected, counted)


def _row(what: str, least: int, most: int, counted: int) -> Row:
    return Row(what=what, least=max(0, least), most=most, counted=counted)
