from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from shuffledp.common.messages.submission import Outcome
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.load.behaviour import FLOOD, Behaviour, Tally, compare
from tests.support.results import result
from tests.support.tables import table

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
_ANSWERS = {"stored": _STORED, "repeated": _REPEATED, "conflict": 1, "malformed": 4}


@table(
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
        ({"lost": 1, "stored": _STORED - 2, "repeated": _REPEATED + 2}, ["stored", "repeated"]),
        # The shuffler's counts are exact, but a lost answer may be any outcome but `stored`.
        ({"counts": _ANSWERS}, []),
        ({"counts": {"malformed": 5}}, ["malformed, by the shuffler"]),
        ({"counts": {"malformed": 5}, "lost": 1}, []),
        ({"counts": {"stored": 10}, "lost": 1}, ["stored, by the shuffler"]),
        *(
            ({"counts": {cause: 1}}, [f"{cause}, by the shuffler"])
            for cause in ("closed", "token used", "unauthenticated")
        ),
        ({"counts": {"unauthenticated": 1}, "lost": 1}, []),
        ({"counts": {"unauthenticated": 0}}, []),
        ({"counts": {"closed": 2}, "closed": 2}, ["closed"]),
        ({"counts": {"closed": 3}, "closed": 2}, ["closed", "closed, by the shuffler"]),
        # The analyzer counts every user once and refuses nothing.
        ({"released": {"n_users": _STORED}}, []),
        ({"released": {"n_users": _STORED + 1}, "lost": 1}, ["users counted by the analyzer"]),
        (
            {"released": {"n_users": _STORED, "refused": {"unreadable": 1, "discarded": 2}}},
            ["reports refused by the analyzer", "reports discarded by the second shuffler"],
        ),
    ],
)
def test_one_answer_too_many_or_too_few_differs(
    changed: dict[str, Any], differing: list[str]
) -> None:
    """Only the rows of the changed counts differ."""
    fields: dict[str, Any] = {"acknowledged": _STORED, "counts": {}, "released": None} | changed
    answers = {name: fields.pop(name, _ANSWERS.get(name, 0)) for name in Outcome}
    counts, released = fields.pop("counts"), fields.pop("released")
    if released is not None:
        released = replace(result(TaskDigest(bytes(32))), **{"refused": {}} | released)
    rows = compare(_KINDS, Tally(answers=Counter(answers), **fields), counts, released)

    assert differing == [row.what for row in rows if not row.holds]
