"""The rules and figures of a task's clusters."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.task.cluster_dummies import ClusterDummies
from tests.support.tables import table

_VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "signed.json").read_text(encoding="utf-8")
)
_SPEC = ClusterDummies(
    negative_weight=4,
    trials=1,
    clusters=((4, 1, 30), (1, 0, 20), (0, 1, 10), (5, 0, 5)),
    rooms=((1, 2**30, 2**31), (5, 2**29, 3 * 2**30)),
)


def _spec(law: Any) -> ClusterDummies:
    return ClusterDummies(
        negative_weight=law["negative_weight"],
        trials=1,
        clusters=tuple(map(tuple, law["types"])),
        rooms=tuple(
            (room["size"], room["shown_weight"], room["filled_weight"])
            for room in law["rooms"]["rooms"]
        ),
    )


@table("law", _VECTORS["laws"])
def test_the_figures_are_those_of_the_reference_laws(law: Any) -> None:
    """Error, average length and largest submission."""
    spec, n, d = _spec(law), law["users"], law["items"]
    assert law["rooms"]["mse_count"] == pytest.approx(n * spec.noise * (d - 1) / d**2, rel=1e-9)
    mean = 1 + float(spec.length_probabilities() @ np.array(spec.lengths))
    assert law["rooms"]["mean_reports"] == pytest.approx(mean, rel=1e-9)
    assert law["rooms"]["largest"] == 1 + spec.lengths[-1] == spec.influence[0]
    assert spec.negative_weight * law["rooms"]["largest"] == spec.influence[1]


def test_a_cluster_lies_in_the_smallest_room_that_holds_it() -> None:
    """Chances follow from the weights of the types of the same room."""
    assert (((1, 0, 20), (0, 1, 10)), ((4, 1, 30), (5, 0, 5))) == _SPEC.types_by_room()
    expected = {
        (1, 0): 1 / 4 * 1 / 2 * 2 / 3,
        (0, 1): 1 / 4 * 1 / 2 * 1 / 3,
        (4, 1): 1 / 8 * 3 / 4 * 6 / 7,
        (5, 0): 1 / 8 * 3 / 4 * 1 / 7,
    }
    assert expected == pytest.approx({(i, j): chance for i, j, chance in _SPEC.chances()})


def test_a_room_may_be_filled_95_times_in_100() -> None:
    """Just that often, and no more: see the refusals below."""
    assert replace(_SPEC, rooms=((5, 1, 2**32 * 19 // 20),)).rooms[0][2] == 4_080_218_931


def test_several_trials_add_their_rooms() -> None:
    """Each sum of up to two rooms is a length; a room that all show gives one length."""
    twice = replace(_SPEC, trials=2)
    assert (0, 1, 2, 5, 6, 10) == twice.lengths
    np.testing.assert_allclose(
        np.array([25, 20, 4, 10, 4, 1]) / 64, twice.length_probabilities(), rtol=1e-12
    )
    alike = replace(_SPEC, rooms=((5, 2**32, 2**30),))
    assert ((5,), [1.0]) == (alike.lengths, alike.length_probabilities().tolist())


@table(
    ("changes", "message"),
    [
        ({"negative_weight": 0}, "negative_weight is 0; it must lie between 1 and 64"),
        ({"negative_weight": 65}, "negative_weight is 65"),
        ({"trials": 65}, "the number of trials of clusters is 65"),
        ({"clusters": ()}, "the number of types of clusters is 0"),
        ({"clusters": ((0, 0, 1),)}, "a cluster's number of reports is 0"),
        ({"clusters": ((256, 0, 1),)}, "a cluster's number of positive reports is 256"),
        ({"clusters": ((1, 0, 0),)}, "a cluster's weight is 0"),
        ({"clusters": ((1, 0, 2**31 + 1),)}, "a cluster's weight is 2147483649; it must lie"),
        ({"clusters": ((1, 0, 1.5),)}, "a cluster's weight must be a whole number"),
        ({"clusters": ((1, 0, 1), (1, 0, 2), (5, 0, 1))}, "a type of clusters is listed twice"),
        ({"clusters": ((6, 0, 1), (1, 0, 1))}, "a cluster has 6 reports; the largest room holds 5"),
        ({"clusters": ((5, 0, 1),)}, r"one of the rooms of \[1, 5\] reports holds no type"),
        ({"rooms": ()}, "the number of rooms is 0"),
        ({"rooms": ((5, 1, 1), (1, 1, 1))}, r"the rooms have \[5, 1\] reports; they must be asc"),
        ({"rooms": ((5, 2**32 + 1, 1),)}, "a room's weight of being shown is 4294967297"),
        ({"rooms": ((1, 2**31, 1), (5, 2**31 + 1, 1))}, "weights of being shown together is"),
        ({"rooms": ((5, 1, 2**32 * 19 // 20 + 1),)}, "weight of being filled is 4080218932"),
        (
            {
                "trials": 64,
                "clusters": ((1, 0, 1), (2, 0, 1), (9, 0, 1)),
                "rooms": ((1, 1, 1), (2, 1, 1), (9, 1, 1)),
            },
            r"submissions would have \d+ lengths or more; they may have at most 256",
        ),
    ],
)
def test_what_no_device_could_draw_is_refused(changes: dict[str, Any], message: str) -> None:
    """The message names the rule and the number."""
    with pytest.raises(TaskError, match=message):
        replace(_SPEC, **changes)
