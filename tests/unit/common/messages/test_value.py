from typing import get_args

import pytest

from common.messages.value import KIND_IN_WORDS, Value, kind_of
from common.protocols import Kind


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("categorical", 0),
        ("categorical", 2**64),
        ("string", ""),
        ("string", "3"),
        ("mean", 0.0),
        ("mean", float("nan")),
        ("vector", ()),
        ("vector", (1.0,)),
        ("key-value", {}),
        ("key-value", {3: 0.5}),
    ],
)
def test_a_value_tells_what_kind_it_is(kind: Kind, value: Value) -> None:
    """By its type alone: nothing and 0 are values too, and whether it is right is told later."""
    assert kind == kind_of(value)


def test_every_kind_has_words_of_its_own() -> None:
    """A refusal tells two kinds apart."""
    assert set(get_args(Kind)) == set(KIND_IN_WORDS)
    assert len(KIND_IN_WORDS) == len(set(KIND_IN_WORDS.values()))
