"""Convert people's values, submissions and outcomes between protocol buffers and values."""

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from shuffledp.common.crypto.privacy_tokens import TOKEN_BYTES
from shuffledp.common.crypto.signing import SIGNATURE_BYTES
from shuffledp.common.errors import ValueRangeError, WireError
from shuffledp.common.limits import MAX_ENVELOPE_BYTES, parse_bounded, parse_count, parse_fixed
from shuffledp.common.messages.submission import MAX_VALUE_CHARACTERS, Outcome, Value, kind_of
from shuffledp.common.protocols import Kind
from shuffledp.common.task.specs import MAX_DIMENSIONS, MAX_KEYS
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.fields import EnumCodec, digest_from_wire
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2

MAX_BULK_ENVELOPES: Final = 2_000
MAX_PERSON_CHARACTERS: Final = 128
_UNSENDABLE: Final[Mapping[Kind, str]] = {
    "categorical": "an item must be at least 0 and below 2^64",
    "string": "a text must be valid Unicode",
    "mean": "a value must be a number",
    "vector": "a value must hold numbers",
    "key-value": "a key must be at least 0 and below 2^32",
}
"""By kind, the rule that a value breaks if its message cannot hold it."""
_OUTCOMES: Final = EnumCodec(Outcome, shuffler_pb2.SubmissionOutcome.DESCRIPTOR)


def envelope_from_wire(message: shuffler_pb2.SubmitRequest) -> tuple[TaskDigest, bytes, bytes]:
    """Parse a submission: task, envelope, token (empty if none). Run by the shuffler."""
    envelope = parse_bounded("envelope", message.envelope, MAX_ENVELOPE_BYTES)
    return digest_from_wire(message.task_digest), envelope, _token(message.token)


def envelopes_from_wire(
    message: shuffler_pb2.SubmitBulkRequest,
) -> tuple[TaskDigest, Sequence[bytes], Sequence[bytes]]:
    """Parse submissions: task, envelopes, one token per envelope or none. Run by the shuffler."""
    parse_count("the number of envelopes", len(message.envelopes), MAX_BULK_ENVELOPES)
    tokens = message.tokens
    envelopes = list(message.envelopes)  # each access to the message makes new objects
    parse_bounded("envelope", max(envelopes, key=len, default=b""), MAX_ENVELOPE_BYTES)
    if tokens and len(tokens) != len(envelopes):
        raise WireError(
            f"there are {len(tokens)} tokens for {len(envelopes)} envelopes; send none, or one each"
        )
    return digest_from_wire(message.task_digest), envelopes, [_token(token) for token in tokens]


def _token(field: bytes) -> bytes:
    return parse_fixed("token", field, TOKEN_BYTES) if field else b""


def outcomes_to_wire(
    outcomes: Sequence[Outcome], receipt: bytes = b""
) -> shuffler_pb2.SubmitBulkResponse:
    """Encode submissions' outcomes, and the receipt for the stored ones (empty if none)."""
    numbers = map(_OUTCOMES.to_wire, outcomes)
    return shuffler_pb2.SubmitBulkResponse(outcomes=numbers, receipt=receipt)


def outcomes_from_wire(message: shuffler_pb2.SubmitBulkResponse) -> list[Outcome]:
    """Parse the outcomes of submissions."""
    return [_OUTCOMES("outcomes", number) for number in message.outcomes]


def receipt_from_wire(message: shuffler_pb2.SubmitResponse) -> bytes:
    """Parse a receipt, unverified. Run by the user agent."""
    return parse_bounded("receipt", message.receipt, SIGNATURE_BYTES)


def contribution_to_wire(
    digest: TaskDigest, value: Value, person: str
) -> user_agent_pb2.ContributeRequest:
    """Encode a person's answer; raise ValueRangeError if the message cannot hold the value."""
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
        # The library's own message would repeat the value.
        raise ValueRangeError(_UNSENDABLE[kind_of(value)]) from None
    return request


def contribution_from_wire(
    message: user_agent_pb2.ContributeRequest,
) -> tuple[TaskDigest, Value, str]:
    """Parse a person's answer: task, value, person; raise ValueRangeError for too long a value."""
    return (
        digest_from_wire(message.task_digest),
        _value(message),
        parse_bounded("person", message.person, MAX_PERSON_CHARACTERS),
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
        _check_length("characters", len(message.text), MAX_VALUE_CHARACTERS)
        return message.text
    if stated == "numbers":
        _check_length("numbers", len(message.numbers.numbers), MAX_DIMENSIONS)
        return tuple(message.numbers.numbers)
    if stated == "pairs":
        _check_length("pairs", len(message.pairs.pairs), MAX_KEYS)
        return dict(message.pairs.pairs)
    assert_never(stated)


def _check_length(noun: str, length: int, maximum: int) -> None:
    if length > maximum:
        raise ValueRangeError(f"a value may have at most {maximum} {noun}")


def receipt_request_from_wire(message: user_agent_pb2.GetReceiptRequest) -> tuple[TaskDigest, str]:
    """Parse a request for the record of a person's answer to a task."""
    person = parse_bounded("person", message.person, MAX_PERSON_CHARACTERS)
    return digest_from_wire(message.task_digest), person
