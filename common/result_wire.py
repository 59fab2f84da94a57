"""A released result on its way to an operator, and as the analyzer keeps it; see common/wire.py."""

import math
from typing import Final, get_args

from google.protobuf.message import DecodeError

from common.errors import WireError
from common.estimate_wire import estimate_from_wire, estimate_to_wire
from common.guarantee import Coalition, Guarantee
from common.mechanism_specs import MECHANISMS
from common.protocols import PROTOCOLS
from common.result import RefusalCause, Result
from common.task import MAX_UNIX_TIME, MAX_USERS
from common.wire import digest_from_wire
from common.wire_fields import amount, count, word
from protos.shuffledp.v1 import analyzer_pb2

MAX_RESULT_BYTES: Final = 1024 * 1024 * 1024
"""Largest result that an operator's client takes: three numbers for each of 2^24 items."""

_CAUSES: Final[tuple[RefusalCause, ...]] = get_args(RefusalCause)
_COALITIONS: Final[tuple[Coalition, ...]] = get_args(Coalition)


def result_to_wire(result: Result) -> analyzer_pb2.GetResultResponse:
    """Write a released result."""
    message = analyzer_pb2.GetResultResponse(
        task_digest=result.task_digest,
        protocol=result.protocol,
        mechanism=result.mechanism,
        buckets=result.buckets,
        local_epsilon=result.local_epsilon,
        n_users=result.n_users,
        n_reports=result.n_reports,
        n_dummies=result.n_dummies,
        refused={str(cause): n for cause, n in result.refused.items()},
        guarantees=[
            analyzer_pb2.Guarantee(
                coalition=guarantee.coalition,
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                neighbouring=guarantee.neighbouring,
                theorem=guarantee.theorem,
                assumptions=guarantee.assumptions,
            )
            for guarantee in result.guarantees
        ],
        published_claim=result.published_claim,
        open_seconds=result.open_seconds,
        estimate_seconds=result.estimate_seconds,
        n_sentinels=result.n_sentinels,
        n_sentinels_missing=result.n_sentinels_missing,
        n_sentinels_repeated=result.n_sentinels_repeated,
    )
    estimate_to_wire(result.estimate, message)
    return message


def result_from_wire(message: analyzer_pb2.GetResultResponse) -> Result:
    """
    Read a released result. Only a guarantee's epsilon, and the local one, may be infinite.

    The words that are sentences, such as a theorem, are the analyzer's own and read as they are.
    """
    if "analyzer" not in {guarantee.coalition for guarantee in message.guarantees}:
        raise WireError(
            f"none of the {len(message.guarantees)} guarantees of a result is against the analyzer"
        )
    return Result(
        task_digest=digest_from_wire(message.task_digest),
        protocol=word("the protocol", message.protocol, tuple(PROTOCOLS)),
        mechanism=word("the mechanism", message.mechanism, MECHANISMS),
        buckets=message.buckets,
        local_epsilon=amount("local_epsilon", message.local_epsilon, math.inf),
        n_users=count("n_users", message.n_users, MAX_USERS),
        n_reports=message.n_reports,
        n_dummies=message.n_dummies,
        refused={
            word("a cause of refusal", cause, _CAUSES): n for cause, n in message.refused.items()
        },
        estimate=estimate_from_wire(message),
        guarantees=tuple(
            Guarantee(
                coalition=word("a coalition", guarantee.coalition, _COALITIONS),
                epsilon=amount("a guarantee's epsilon", guarantee.epsilon, math.inf),
                delta=amount("a guarantee's delta", guarantee.delta, 1),
                neighbouring=guarantee.neighbouring,
                theorem=guarantee.theorem,
                assumptions=tuple(guarantee.assumptions),
            )
            for guarantee in message.guarantees
        ),
        published_claim=message.published_claim,
        open_seconds=amount("open_seconds", message.open_seconds, MAX_UNIX_TIME),
        estimate_seconds=amount("estimate_seconds", message.estimate_seconds, MAX_UNIX_TIME),
        n_sentinels=message.n_sentinels,
        n_sentinels_missing=message.n_sentinels_missing,
        n_sentinels_repeated=message.n_sentinels_repeated,
    )


def result_to_bytes(result: Result) -> bytes:
    """Write a result as the analyzer keeps it."""
    return result_to_wire(result).SerializeToString()


def result_from_bytes(kept: bytes) -> Result:
    """
    Read a result that the analyzer kept.

    Raises:
        WireError: The bytes are no result: the file was damaged.
    """
    try:
        message = analyzer_pb2.GetResultResponse.FromString(kept)
    except DecodeError as error:
        raise WireError("what is kept of this task is no result") from error
    return result_from_wire(message)
