import pytest

from common.errors import ShuffleDpError, ValueRangeError, WireError
from common.messages.value import Value, kind_of
from common.task.text import MOST_CHARACTERS
from common.task_digest import TaskDigest
from common.wire.values import contribution_from_wire, contribution_to_wire
from protos.shuffledp.v1 import user_agent_pb2

_DIGEST = TaskDigest(b"d" * 32)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, "categorical"),
        (2**64 - 1, "categorical"),
        ("", "string"),
        ("Ohio", "string"),
        (0.0, "mean"),
        (-1e300, "mean"),
        ((), "vector"),
        ((1.0, -2.5), "vector"),
        ({}, "key-value"),
        ({7: 1.5, 0: -1.0}, "key-value"),
    ],
)
def test_a_value_of_every_kind_is_read_back_as_it_was_written(value: Value, kind: str) -> None:
    """Item 0, an empty text and no pairs are values too, each of its own kind."""
    digest, found, person = contribution_from_wire(contribution_to_wire(_DIGEST, value, "Ada"))

    assert (_DIGEST, value, "Ada") == (digest, found, person)
    assert kind == kind_of(found)


def test_a_call_without_a_value_is_refused() -> None:
    """What was forgotten is not item 0."""
    with pytest.raises(WireError, match="holds 0 values"):
        contribution_from_wire(user_agent_pb2.ContributeRequest(task_digest=_DIGEST))


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("s" * (MOST_CHARACTERS + 1), "at most 4096 characters"),
        ((918273.5,) * 8193, "at most 8192 numbers"),
        (dict.fromkeys(range(65_537), 918273.5), "at most 65536 pairs"),
    ],
)
def test_a_value_that_no_task_has_room_for_is_refused_unseen(value: Value, rule: str) -> None:
    """How long it is, is not repeated either."""
    with pytest.raises(ShuffleDpError, match=rule) as caught:
        contribution_from_wire(contribution_to_wire(_DIGEST, value, ""))
    assert "918273" not in str(caught.value)
    assert "sss" not in str(caught.value)


@pytest.mark.parametrize("value", [-1, 2**64, {-1: 1.0}, {2**32: 1.0}, "\ud800"])
def test_what_no_field_holds_is_refused_before_it_is_sent(value: Value) -> None:
    """By a sentence of its own: that of the library repeats the value."""
    with pytest.raises(ValueRangeError, match=r"must be at least 0 and below 2|valid Unicode"):
        contribution_to_wire(_DIGEST, value, "")
