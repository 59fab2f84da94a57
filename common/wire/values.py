"""A person's value on its way to their own device; see common/wire/batches.py."""

from collections.abc import Mapping
from typing import Final, assert_never

from common.errors import ValueRangeError, WireError
from common.messages.value import Value, kind_of
from common.protocols import Kind
from common.task.specs import MAX_DIMENSIONS, MAX_KEYS
from common.task.text import MOST_CHARACTERS
from common.task_digest import TaskDigest
from common.wire.batches import digest_from_wire
from common.wire.fields import short
from protos.shuffledp.v1 import user_agent_pb2

MAX_PERSON_CHARACTERS: Final = 128
_NOT_HELD: Final[Mapping[Kind, str]] = {
    "categorical": "an item must be at least 0 and below 2^64",
    "string": "a text must be valid Unicode",
    "mean": "a value must be a number",
    "vector": "a value must hold numbers",
    "key-value": "a key must be at least 0 and below 2^32",
}
"""Why no call carries a value."""


def contribution_to_wire(
    digest: TaskDigest, value: Value, person: str
) -> user_agent_pb2.ContributeRequest:
    """
    Write a person's answer.

    Raises:
        ValueRangeError: An item is negative or larger than any task's, or a key is.
    """
    request = user_agent_pb2.ContributeRequest(task_digest=digest, person=person)
    try:
        if isinstance(value, int):
            request.value = value
        elif isinstance(value, str):
            request.text = value
        elif isinstance(value, float):
            request.number = value
        elif isinstance(value, tuple):
            request.numbers.CopyFrom(user_agent_pb2.Numbers(numbers=value))
        else:
            request.pairs.CopyFrom(user_agent_pb2.Pairs(pairs=value))
    except ValueError:
        # The library's own message repeats the value.
        raise ValueRangeError(_NOT_HELD[kind_of(value)]) from None
    return request


def contribution_from_wire(
    message: user_agent_pb2.ContributeRequest,
) -> tuple[TaskDigest, Value, str]:
    """
    Read a person's answer: task, value, person. Run by the user agent.

    A value that was forgotten is not item 0. How long it is, is not repeated.
    """
    return (
        digest_from_wire(message.task_digest),
        _value(message),
        short("person", message.person, MAX_PERSON_CHARACTERS),
    )


def _value(message: user_agent_pb2.ContributeRequest) -> Value:
    stated = message.WhichOneof("answer")
    if stated is None:
        raise WireError("the call holds 0 values; it must hold 1")
    if stated == "value":
        return message.value
    if stated == "number":
        return message.number
    if stated == "text":
        _check_length("characters", len(message.text), MOST_CHARACTERS)
        return message.text
    if stated == "numbers":
        _check_length("numbers", len(message.numbers.numbers), MAX_DIMENSIONS)
        return tuple(message.numbers.numbers)
    if stated == "pairs":
        _check_length("pairs", len(message.pairs.pairs), MAX_KEYS)
        return dict(message.pairs.pairs)
    assert_never(stated)


def _check_length(of_what: str, length: int, most: int) -> None:
    if length > most:
        raise ValueRangeError(f"a value may have at most {most} {of_what}")
