from collections import Counter

import numpy as np
import pytest

from common.messages.submission import Outcome
from deploy.load.behaviour import FLOOD, Behaviour
from deploy.load.comparison import (
    CountRow,
    answered,
    counted_by_analyzer,
    counted_by_service,
)
from deploy.load.sender import Tally

_KINDS = np.array(
    [
        *[Behaviour.HONEST] * 5,
        *[Behaviour.DUPLICATE] * 2,
        Behaviour.FLOODING,
        Behaviour.CONFLICT,
        *[Behaviour.MALFORMED] * 3,
        Behaviour.OVERSIZED,
        Behaviour.DROPPING,
    ],
    dtype=np.uint8,
)
_STORED, _REPEATED = 9, 2 + FLOOD - 1


def _seen(**changes: int) -> Tally:
    """What these users see if nothing goes wrong, with some answers changed."""
    answers = {"stored": _STORED, "repeated": _REPEATED, "conflict": 1, "malformed": 4}
    found = answers | {name: number for name, number in changes.items() if name in set(Outcome)}
    others = {name: number for name, number in changes.items() if name not in found}
    return Tally(
        answers=Counter({Outcome(name): number for name, number in found.items()}),
        **{"acknowledged": _STORED} | others,  # type: ignore[arg-type]  # names of counts
    )


def _differing(rows: list[CountRow]) -> list[str]:
    return [row.what for row in rows if not row.holds]


def test_a_run_in_which_nothing_goes_wrong_matches() -> None:
    """To the last answer."""
    assert not _differing(answered(_KINDS, _seen()))


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({"stored": _STORED - 1}, ["stored"]),
        ({"stored": _STORED + 1}, ["stored"]),
        ({"repeated": _REPEATED + 1}, ["repeated"]),
        ({"conflict": 0}, ["conflict"]),
        ({"malformed": 3}, ["malformed"]),
        ({"closed": 1}, ["closed"]),
        ({"token used": 1}, ["other refusals"]),
        ({"given_up": 1}, ["given up"]),
        ({"acknowledged": _STORED - 1}, ["users acknowledged"]),
    ],
)
def test_one_answer_too_many_or_too_few_is_told(
    changed: dict[str, int], differing: list[str]
) -> None:
    """And where."""
    assert differing == _differing(answered(_KINDS, _seen(**changed)))


def test_copies_that_found_no_room_are_not_expected() -> None:
    """Nobody sends the copies of a flood again."""
    assert not _differing(answered(_KINDS, _seen(shed=9, repeated=_REPEATED - 9)))
    assert ["repeated"] == _differing(answered(_KINDS, _seen(shed=9)))


def test_a_lost_answer_may_make_a_stored_one_repeated_but_loses_none() -> None:
    """The next attempt is answered `repeated` if the one before was stored after all."""
    one_lost = _seen(lost=1, stored=_STORED - 1, repeated=_REPEATED + 1)

    assert not _differing(answered(_KINDS, one_lost))
    assert not _differing(answered(_KINDS, _seen(lost=1)))
    assert ["stored or repeated"] == _differing(answered(_KINDS, _seen(lost=1, stored=_STORED - 1)))
    assert ["stored", "repeated"] == _differing(
        answered(_KINDS, _seen(lost=1, stored=_STORED - 2, repeated=_REPEATED + 2))
    )


def test_the_shufflers_own_counts_are_exact_unless_answers_were_lost() -> None:
    """It may have counted what nobody was told."""
    counts = {"stored": _STORED, "repeated": _REPEATED, "malformed": 4}

    assert not _differing(counted_by_service(_KINDS, _seen(), counts))
    assert _differing(counted_by_service(_KINDS, _seen(), counts | {"malformed": 5}))
    assert not _differing(counted_by_service(_KINDS, _seen(lost=1), counts | {"malformed": 5}))
    assert _differing(counted_by_service(_KINDS, _seen(lost=1), counts | {"stored": 10}))


@pytest.mark.parametrize("cause", ["closed", "token used", "unauthenticated"])
def test_a_refusal_that_nobody_earned_is_told_though_no_user_saw_it(cause: str) -> None:
    """Unless answers were lost: then it may be one of those."""
    counts = {"stored": _STORED, cause: 1}

    assert [f"{cause}, by the shuffler"] == _differing(counted_by_service(_KINDS, _seen(), counts))
    assert not _differing(counted_by_service(_KINDS, _seen(lost=1), counts))
    assert not _differing(counted_by_service(_KINDS, _seen(), counts | {cause: 0}))


def test_submissions_that_users_were_told_came_too_late_are_expected_of_the_shuffler() -> None:
    """The row of what users were answered differs already."""
    seen = _seen(closed=2)

    assert ["closed"] == _differing(answered(_KINDS, seen))
    assert not _differing(counted_by_service(_KINDS, seen, {"closed": 2}))
    assert _differing(counted_by_service(_KINDS, seen, {"closed": 3}))


def test_the_analyzer_counts_every_user_once_and_refuses_nothing() -> None:
    """Whatever was lost on the way to the shuffler."""
    assert not _differing(counted_by_analyzer(_KINDS, _STORED, 0))
    assert _differing(counted_by_analyzer(_KINDS, _STORED + 1, 0))
    assert _differing(counted_by_analyzer(_KINDS, _STORED, 1))
