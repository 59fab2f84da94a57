from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.base import is_null
from shuffledp.common.mechanisms.discovery.prefix_hashing import (
    PrefixHashing,
    best_buckets,
    code_of,
    elements_of,
)
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.draft import OpenDraft

_3_TO_1 = ResponseWeights(true=3, other=1)
_SMALL = PrefixHashing(3, ((0, -1), (0, 1), (1, 2)), _3_TO_1)


def test_a_tally_is_the_valid_reports() -> None:
    """Without a report, none."""
    reports = _SMALL.randomize(np.zeros((50, 3), dtype=np.int64), np.random.default_rng(1))

    assert reports.tobytes() == _SMALL.tally(reports).tobytes()
    assert 0 == len(_SMALL.tally(reports[:0]))
    assert _SMALL.valid(reports).all()
    assert not is_null(reports).any()


@pytest.mark.parametrize("value", [3, -1])
def test_an_element_outside_the_field_is_refused(value: int) -> None:
    """The message does not repeat it."""
    with pytest.raises(ValueRangeError, match="a value must lie between 0 and 2"):
        _SMALL.randomize(np.full((1, 3), value), np.random.default_rng(1))


@pytest.mark.parametrize(
    ("local_epsilon", "buckets"), [(0.5, 257), (6.0, 401), (8.0, 2971), (20.0, 65521)]
)
def test_buckets_are_the_prime_nearest_to_the_best_number(
    local_epsilon: float, buckets: int
) -> None:
    """E^ε + 1, within the range of two bytes; at 6 and 8 there is 404.4 and 2982.0."""
    assert buckets == best_buckets(local_epsilon)


def test_a_task_of_each_encoding_keeps_its_promise() -> None:
    """Levels, elements and sizes of its reports."""
    shapes = {"text": (7, 8, 19), "code": (7, 8, 19), "hash": (7, 8, 19), "spell": (64, 65, 7)}
    for encoding, (levels, elements, size) in shapes.items():
        spec = PrefixHashing.specify(OpenDraft(encoding=encoding), 0, 8.0)
        mechanism = PrefixHashing.of(spec)
        assert (levels, size) == (mechanism.levels, mechanism.report_dtype.itemsize)
        assert size == spec.report_bytes
        assert elements == 1 + max(map(max, mechanism.columns))
        assert mechanism.keeps_promise(8.0)
        assert not mechanism.keeps_promise(7.99)


@pytest.mark.parametrize(
    ("fields", "buckets", "rule"),
    [
        ({}, 256, "buckets is 256"),
        ({}, 65535, "buckets is 65535"),
        ({}, 999, "must be a prime"),
        ({"encoding": "words"}, 0, "encoding must be one of"),
        ({"code_bytes": 17}, 0, "code_bytes is 17"),
        ({"code_bytes": 4, "encoding": "hash"}, 0, "code_bytes is 4; it must lie between 5 and 16"),
        ({"most_bytes": 256}, 0, "most_bytes is 256"),
    ],
)
def test_parameters_out_of_range_are_refused(
    fields: dict[str, Any], buckets: int, rule: str
) -> None:
    """A message names the rule and the number."""
    with pytest.raises(TaskError, match=rule):
        PrefixHashing.specify(OpenDraft(**fields), buckets, 4.0)
    with pytest.raises(TaskError, match="report_bytes is 5"):
        PrefixHashing.of(replace(PrefixHashing.specify(OpenDraft(), 0, 4.0), report_bytes=5))


def test_a_code_is_the_start_of_a_texts_hash_and_values_are_padded() -> None:
    """SHA-256 of "abc" is in its standard."""
    assert "ba7816bf8f01cfea" == code_of(b"abc", 8).hex()
    assert [[7, 97, 98, 0, 0]] == elements_of(b"ab", 4, 7).tolist()
