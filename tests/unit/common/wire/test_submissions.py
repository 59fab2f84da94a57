import pytest

from shuffledp.common.errors import ShuffleDpError, ValueRangeError, WireError
from shuffledp.common.messages.submission import MAX_VALUE_CHARACTERS, Outcome, Value, kind_of
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import submissions
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2

_DIGEST = TaskDigest(b"d" * 32)


def test_outcomes_are_written_one_by_one() -> None:
    """Every outcome survives; an unknown one is refused."""
    assert list(Outcome) == submissions.outcomes_from_wire(
        submissions.outcomes_to_wire(list(Outcome))
    )
    with pytest.raises(WireError, match="outcome 6 is unknown to this program"):
        submissions.outcomes_from_wire(shuffler_pb2.SubmitBulkResponse.FromString(b"\x0a\x01\x06"))


def test_tokens_come_with_each_envelope_or_with_none() -> None:
    """A token has 354 bytes, or none for a user without one; a call has up to 2,000 envelopes."""
    request = shuffler_pb2.SubmitBulkRequest(task_digest=_DIGEST, envelopes=[b""] * 2001)
    with pytest.raises(WireError, match="envelopes is 2001; it may be at most 2000"):
        submissions.envelopes_from_wire(request)
    envelopes, token = [b"one", b"two"], bytes(354)
    for tokens, read in (([], []), ([token, b""], [token, b""])):
        message = shuffler_pb2.SubmitBulkRequest(
            task_digest=_DIGEST, envelopes=envelopes, tokens=tokens
        )
        assert (_DIGEST, envelopes, read) == submissions.envelopes_from_wire(message)
    for wrong in ([token], [token] * 3, [token, token[:-1]]):
        message = shuffler_pb2.SubmitBulkRequest(
            task_digest=_DIGEST, envelopes=envelopes, tokens=wrong
        )
        with pytest.raises(WireError, match="token"):
            submissions.envelopes_from_wire(message)
    single = shuffler_pb2.SubmitRequest(task_digest=_DIGEST, envelope=b"e", token=token)
    assert (_DIGEST, b"e", token) == submissions.envelope_from_wire(single)


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
    """Item 0, an empty text and no pairs are values too; a missing value is refused."""
    with pytest.raises(WireError, match="holds 0 values"):
        submissions.contribution_from_wire(user_agent_pb2.ContributeRequest(task_digest=_DIGEST))
    digest, found, person = submissions.contribution_from_wire(
        submissions.contribution_to_wire(_DIGEST, value, "Ada")
    )

    assert (_DIGEST, value, "Ada") == (digest, found, person)
    assert kind == kind_of(found)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("s" * (MAX_VALUE_CHARACTERS + 1), "at most 1048576 characters"),
        ((918273.5,) * 8193, "at most 8192 numbers"),
        (dict.fromkeys(range(65_537), 918273.5), "at most 65536 pairs"),
    ],
)
def test_an_oversized_value_is_refused_without_being_repeated(value: Value, rule: str) -> None:
    """The message does not state its length either."""
    with pytest.raises(ShuffleDpError, match=rule) as caught:
        submissions.contribution_from_wire(submissions.contribution_to_wire(_DIGEST, value, ""))
    assert "918273" not in str(caught.value)
    assert "sss" not in str(caught.value)


@pytest.mark.parametrize("value", [-1, 2**64, {-1: 1.0}, {2**32: 1.0}, "\ud800"])
def test_a_value_that_no_field_holds_is_refused_before_it_is_sent(value: Value) -> None:
    """The library's own message would repeat the value."""
    with pytest.raises(ValueRangeError, match=r"must be at least 0 and below 2|valid Unicode"):
        submissions.contribution_to_wire(_DIGEST, value, "")
