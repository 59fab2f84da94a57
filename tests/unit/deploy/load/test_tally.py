from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from common.messages.submission import Outcome
from common.task_digest import TaskDigest
from deploy.load.behaviour import FLOOD, Behaviour
from deploy.load.tally import Tally, compare
from tests.support.results import result

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


def _differing(counts: dict[str, int], **changes: int) -> list[str]:
    """Rows that differ where these users saw the expected answers, but for some changes."""
    answers = {"stored": _STORED, "repeated": _REPEATED, "conflict": 1, "malformed": 4}
    found = answers | {name: number for name, number in changes.items() if name in set(Outcome)}
    others = {name: number for name, number in changes.items() if name not in found}
    seen = Tally(
        answers=Counter({Outcome(name): number for name, number in found.items()}),
        **{"acknowledged": _STORED} | others,  # type: ignore[arg-type]  # names of counts
    )
    return [row.what for row in compare(_KINDS, seen, counts, None) if not row.holds]


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({}, []),
        ({"stored": _STORED - 1}, ["stored"]),
        ({"stored": _STORED + 1}, ["stored"]),
        ({"repeated": _REPEATED + 1}, ["repeated"]),
        ({"conflict": 0}, ["conflict"]),
        ({"malformed": 3}, ["malformed"]),
        ({"closed": 1}, ["closed"]),
        ({"token used": 1}, ["other refusals"]),
        ({"given_up": 1}, ["given up"]),
        ({"acknowledged": _STORED - 1}, ["users acknowledged"]),
        # Copies of a flood that found no room are never sent again.
        ({"shed": 9, "repeated": _REPEATED - 9}, []),
        ({"shed": 9}, ["repeated"]),
        # After a lost answer the retry is answered `repeated` if the submission was stored.
        ({"lost": 1, "stored": _STORED - 1, "repeated": _REPEATED + 1}, []),
        ({"lost": 1}, []),
        ({"lost": 1, "stored": _STORED - 1}, ["stored or repeated"]),
        (
            {"lost": 1, "stored": _STORED - 2, "repeated": _REPEATED + 2},
            ["stored", "repeated"],
        ),
    ],
)
def test_one_answer_too_many_or_too_few_differs(
    changed: dict[str, int], differing: list[str]
) -> None:
    """In the row that names it."""
    assert differing == _differing({}, **changed)


@pytest.mark.parametrize(
    ("counts", "seen", "differing"),
    [
        ({"stored": _STORED, "repeated": _REPEATED, "malformed": 4}, {}, []),
        ({"malformed": 5}, {}, ["malformed, by the shuffler"]),
        ({"malformed": 5}, {"lost": 1}, []),
        ({"stored": 10}, {"lost": 1}, ["stored, by the shuffler"]),
        *(
            ({cause: 1}, {}, [f"{cause}, by the shuffler"])
            for cause in ("closed", "token used", "unauthenticated")
        ),
        ({"unauthenticated": 1}, {"lost": 1}, []),
        ({"unauthenticated": 0}, {}, []),
        ({"closed": 2}, {"closed": 2}, ["closed"]),
        ({"closed": 3}, {"closed": 2}, ["closed", "closed, by the shuffler"]),
    ],
)
def test_the_shufflers_counts_are_exact_unless_answers_were_lost(
    counts: dict[str, int], seen: dict[str, int], differing: list[str]
) -> None:
    """A lost answer may be counted as any outcome but `stored`."""
    assert differing == _differing(counts, **seen)


@pytest.mark.parametrize(
    ("n_users", "refused", "differing"),
    [
        (_STORED, 0, []),
        (_STORED + 1, 0, ["users counted by the analyzer"]),
        (_STORED, 1, ["reports refused by the analyzer"]),
    ],
)
def test_the_analyzer_counts_every_user_once_and_refuses_nothing(
    n_users: int, refused: int, differing: list[str]
) -> None:
    """Whatever was lost on the way to the shuffler."""
    released = replace(
        result(TaskDigest(bytes(32))), n_users=n_users, refused={"unreadable": refused}
    )
    rows = compare(_KINDS, Tally(), {}, released)

    assert differing == [row.what for row in rows[-2:] if not row.holds]
