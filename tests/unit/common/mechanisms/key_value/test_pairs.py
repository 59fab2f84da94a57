import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from common.errors import ValueRangeError
from common.mechanisms.key_value.pairs import Pairs

_NAN = math.nan


def test_a_person_is_kept_as_long_as_its_pairs() -> None:
    """In the order of keys, and scaled from the task's range to -1 .. 1."""
    pairs = Pairs.of_person({65535: 10.0, 7: 0.0, 300: 7.5}, 0.0, 10.0)

    assert 1 == pairs.n_users
    assert [0, 3] == pairs.offsets.tolist()
    assert [7, 300, 65535] == pairs.keys.tolist()
    assert [-1.0, 0.5, 1.0] == pairs.values.tolist()


def test_a_table_is_kept_without_its_gaps() -> None:
    """The second person owns nothing, the third everything."""
    table = np.array([[_NAN, 0.5], [_NAN, _NAN], [-1.0, 1.0]])
    pairs = Pairs.of_table(table, 2)

    assert 3 == pairs.n_users
    assert [0, 1, 1, 3] == pairs.offsets.tolist()
    assert [1, 0, 1] == pairs.keys.tolist()
    assert [0.5, -1.0, 1.0] == pairs.values.tolist()


def test_looking_up_gives_back_the_table() -> None:
    """Of every key, for all people at once."""
    rng = np.random.default_rng(1)
    table = np.where(rng.random((50, 7)) < 0.4, rng.uniform(-1, 1, (50, 7)), _NAN)
    pairs = Pairs.of_table(table, 7)
    for key in range(7):
        owned, values = pairs.look_up(np.full(50, key), 7)
        assert (~np.isnan(table[:, key])).tolist() == owned.tolist()
        assert np.nan_to_num(table[:, key]).tolist() == values.tolist()


def test_who_owns_nothing_finds_nothing() -> None:
    """Nobody at all, too."""
    owned, values = Pairs.of_person({}, 0.0, 1.0).look_up(np.array([3]), 5)
    nobody = Pairs.of_table(np.zeros((0, 5)), 5)

    assert ([False], [0.0]) == (owned.tolist(), values.tolist())
    assert 0 == nobody.n_users
    assert 0 == len(nobody.look_up(np.zeros(0, dtype=np.int64), 5)[0])


@pytest.mark.parametrize(
    "owned",
    [
        {3: 5.125},
        {3: -0.001},
        {3: _NAN},
        {3: math.inf},
        {3: 10**400},
        {3: "5.125"},
        {3: None},
        {4321987: 1.0},
        {-4321987: 1.0},
        {10**30: 1.0},
        {3.0: 1.0},
        {True: 1.0},
        {"3": 1.0},
        {65536: 1.0},
    ],
    ids=repr,
)
def test_what_is_no_pair_of_the_task_is_refused(owned: Mapping[Any, Any]) -> None:
    """Without a word of the value or of the key."""
    with pytest.raises(ValueRangeError) as refused:
        Pairs.of_person(owned, 0.0, 5.0)

    message = str(refused.value)
    assert message in {
        "a key must be one of the task's",
        "a value must be a number from 0.0 to 5.0",
    }


@pytest.mark.parametrize(
    "table",
    [
        np.array([[0.0, 1.125]]),
        np.array([[-math.inf, 0.0]]),
        np.array([[0.0, 0.5, 0.5]]),
        np.array([[0.5]]),
        np.array([0.5, 0.5]),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: Any) -> None:
    """In its shape, or by a value."""
    with pytest.raises(ValueRangeError) as refused:
        Pairs.of_table(table, 2)

    assert not any(digits in str(refused.value) for digits in ("1.125", "inf", "0.5"))


@pytest.mark.parametrize(
    ("keys", "values", "rule"),
    [
        ([5, 5], [0.5, 0.25], "a person may own a key once"),
        ([5, 4], [0.5, 0.25], "keys must ascend"),
        ([-1, 4], [0.5, 0.25], "one of the task's"),
        ([4, 5], [0.5, _NAN], "a number in the task's range"),
        ([4, 5], [0.5, -1.0001], "a number in the task's range"),
    ],
)
def test_pairs_that_break_a_rule_do_not_exist(
    keys: list[int], values: list[float], rule: str
) -> None:
    """Duplicates, unknown keys, values that are no numbers of the range."""
    with pytest.raises(ValueRangeError, match=rule):
        Pairs(offsets=np.array([0, 2]), keys=np.array(keys), values=np.array(values))


def test_two_people_may_own_the_same_key() -> None:
    """Keys ascend within a person only; people who own nothing stand between."""
    pairs = Pairs(offsets=np.array([0, 2, 2, 4]), keys=np.array([1, 5, 1, 5]), values=np.zeros(4))

    assert [True, False, True] == pairs.look_up(np.array([5, 5, 1]), 6)[0].tolist()


@pytest.mark.parametrize(
    ("offsets", "keys"), [([], []), ([1, 1], [3]), ([0, 2, 1], [3]), ([0, 2], [3])]
)
def test_offsets_that_do_not_run_through_the_pairs_are_a_mistake(
    offsets: list[int], keys: list[int]
) -> None:
    """Of a program, and not of a person."""
    with pytest.raises(ValueError, match="offsets must run"):
        Pairs(
            offsets=np.array(offsets, dtype=np.int64),
            keys=np.array(keys, dtype=np.int64),
            values=np.zeros(len(keys)),
        )
