import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import ValueRangeError
from shuffledp.common.mechanisms.key_value.pairs import Pairs

_NAN = math.nan


def test_pairs_of_a_person_are_sorted_and_scaled() -> None:
    """Pairs are sorted by key and scaled from the range of the task to -1 .. 1."""
    pairs = Pairs.of_person({65535: 10.0, 7: 0.0, 300: 7.5}, 0.0, 10.0)

    assert 1 == pairs.n_users
    assert [0, 3] == pairs.offsets.tolist()
    assert [7, 300, 65535] == pairs.keys.tolist()
    assert [-1.0, 0.5, 1.0] == pairs.values.tolist()


def test_look_ups_return_the_table() -> None:
    """Look-ups agree for every key of 50 people, one of whom owns nothing."""
    rng = np.random.default_rng(1)
    table = np.where(rng.random((50, 7)) < 0.4, rng.uniform(-1, 1, (50, 7)), _NAN)
    table[3] = _NAN
    pairs = Pairs.of_table(table, 7)
    assert 50 == pairs.n_users
    for key in range(7):
        owned, values = pairs.look_up(np.full(50, key), 7)
        assert (~np.isnan(table[:, key])).tolist() == owned.tolist()
        assert np.nan_to_num(table[:, key]).tolist() == values.tolist()


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
def test_invalid_pairs_are_refused(owned: Mapping[Any, Any]) -> None:
    """The message contains neither the value nor the key."""
    with pytest.raises(ValueRangeError) as refused:
        Pairs.of_person(owned, 0.0, 5.0)

    message = str(refused.value)
    assert message in {
        "a key must be one of the task's keys",
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
    """A wrong shape or value is refused, and the message does not contain the value."""
    with pytest.raises(ValueRangeError) as refused:
        Pairs.of_table(table, 2)

    assert not any(digits in str(refused.value) for digits in ("1.125", "inf", "0.5"))


@pytest.mark.parametrize(
    ("keys", "values", "rule"),
    [
        ([5, 5], [0.5, 0.25], "a person may own each key only once"),
        ([5, 4], [0.5, 0.25], "keys must ascend"),
        ([-1, 4], [0.5, 0.25], "one of the task's"),
        ([4, 5], [0.5, _NAN], "a number in the task's range"),
        ([4, 5], [0.5, -1.0001], "a number in the task's range"),
    ],
)
def test_inconsistent_pairs_are_refused(keys: list[int], values: list[float], rule: str) -> None:
    """The message names the rule for keys or for values."""
    with pytest.raises(ValueRangeError, match=rule):
        Pairs(offsets=np.array([0, 2]), keys=np.array(keys), values=np.array(values))


@pytest.mark.parametrize(
    ("offsets", "keys"), [([], []), ([1, 1], [3]), ([0, 2, 1], [3]), ([0, 2], [3])]
)
def test_inconsistent_offsets_are_refused(offsets: list[int], keys: list[int]) -> None:
    """They raise ValueError, since they are a mistake of the program and not of a user."""
    with pytest.raises(ValueError, match="offsets must run"):
        Pairs(
            offsets=np.array(offsets, dtype=np.int64),
            keys=np.array(keys, dtype=np.int64),
            values=np.zeros(len(keys)),
        )
