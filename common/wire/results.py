"""Estimates of every kind on their way; see common/wire/batches.py."""

import math
from collections.abc import Sequence
from typing import Final, get_args

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from common.errors import WireError
from common.messages.estimate import BitTable, Estimate, Histogram, KeyValues, Means, Owners
from common.messages.guarantee import Coalition, Guarantee
from common.messages.result import RefusalCause, Result
from common.protocols import PROTOCOLS
from common.task.specs import MAX_BITS, MAX_COHORTS, MAX_DOMAIN_SIZE, MECHANISMS
from common.task.task import MAX_UNIX_TIME, MAX_USERS
from common.wire.batches import digest_from_wire
from common.wire.fields import amount, count, figures, whole, word
from protos.shuffledp.v1 import analyzer_pb2

_MOST_SHARE: Final = 1e30
"""
Most that a debiased share, or its error, may be; a generous bound, whatever devices sent. 2^30
reports for each user, the shuffler's dummies among them, over the least p - q that weights below
2^63 make, 2^-63, come to 10^28.
"""
_MOST_REFINED: Final = 1 + 1e-6
"""A share of a distribution, and what rounding may add."""
_MOST_MEAN: Final = 1e30
"""Likewise of a mean, or its error: a range reaches 10^12, and d/k times a mechanism's largest."""


def estimate_to_wire(estimate: Estimate, message: analyzer_pb2.GetResultResponse) -> None:
    """Write an estimate into the result that it belongs to."""
    if isinstance(estimate, Histogram):
        message.frequencies.extend(estimate.frequencies)
        message.standard_errors.extend(estimate.standard_errors)
        message.refined.extend(estimate.refined)
        message.mse_theory = estimate.mse_theory
    elif isinstance(estimate, Means):
        means = analyzer_pb2.Means(
            means=estimate.means,
            standard_errors=estimate.standard_errors,
            shrunk=estimate.shrunk,
            mse_theory=estimate.mse_theory,
            biased=not estimate.unbiased,
        )
        message.means.CopyFrom(means)
    elif isinstance(estimate, KeyValues):
        message.key_values.CopyFrom(_key_values_to_wire(estimate))
    else:
        table = analyzer_pb2.BitTable(
            cohort_sizes=estimate.cohort_sizes.tolist(),
            bit_counts=estimate.bit_counts.ravel().tolist(),
        )
        message.bit_table.CopyFrom(table)


def estimate_from_wire(message: analyzer_pb2.GetResultResponse) -> Estimate:
    """Read the estimate of a result; exactly one kind of it is there."""
    n_estimates = (
        bool(message.frequencies)
        + message.HasField("means")
        + message.HasField("key_values")
        + message.HasField("bit_table")
    )
    if n_estimates != 1:
        raise WireError(f"a result holds {n_estimates} estimates; it must hold 1")
    if message.HasField("means"):
        return _means_from_wire(message.means)
    if message.HasField("key_values"):
        return _key_values_from_wire(message.key_values)
    if message.HasField("bit_table"):
        return _bit_table_from_wire(message.bit_table)
    whole("the number of values", len(message.frequencies), MAX_DOMAIN_SIZE)
    return Histogram(
        frequencies=figures("a share", message.frequencies, -_MOST_SHARE, _MOST_SHARE),
        standard_errors=figures("a standard error", message.standard_errors, 0, _MOST_SHARE),
        refined=figures("a refined share", message.refined, 0, _MOST_REFINED),
        mse_theory=amount("mse_theory", message.mse_theory, _MOST_SHARE**2),
    )


def _means_from_wire(message: analyzer_pb2.Means) -> Means:
    whole("the number of means", len(message.means), MAX_DOMAIN_SIZE)
    return Means(
        means=figures("a mean", message.means, -_MOST_MEAN, _MOST_MEAN),
        standard_errors=figures("a standard error", message.standard_errors, 0, _MOST_MEAN),
        shrunk=figures("a shrunk mean", message.shrunk, -_MOST_MEAN, _MOST_MEAN),
        mse_theory=amount("mse_theory", message.mse_theory, _MOST_MEAN**2),
        unbiased=not message.biased,
    )


def _key_values_to_wire(estimate: KeyValues) -> analyzer_pb2.KeyValues:
    message = analyzer_pb2.KeyValues(
        means_with_fakes=estimate.means_with_fakes,
        errors_with_fakes=estimate.errors_with_fakes,
        reports=estimate.reports.tolist(),
    )
    if estimate.owners is not None:
        owners = analyzer_pb2.Owners(
            frequencies=estimate.owners.frequencies,
            frequency_errors=estimate.owners.frequency_errors,
            means=estimate.owners.means,
            mean_errors=estimate.owners.mean_errors,
        )
        message.owners.CopyFrom(owners)
    return message


def _key_values_from_wire(message: analyzer_pb2.KeyValues) -> KeyValues:
    whole("the number of keys", len(message.means_with_fakes), MAX_DOMAIN_SIZE)
    return KeyValues(
        means_with_fakes=figures("a mean", message.means_with_fakes, -_MOST_MEAN, _MOST_MEAN),
        errors_with_fakes=figures("a standard error", message.errors_with_fakes, 0, _MOST_MEAN),
        reports=_counts(message.reports),
        owners=_owners_from_wire(message.owners) if message.HasField("owners") else None,
    )


def _owners_from_wire(message: analyzer_pb2.Owners) -> Owners:
    return Owners(
        frequencies=figures("a share", message.frequencies, -_MOST_SHARE, _MOST_SHARE),
        frequency_errors=figures("a standard error", message.frequency_errors, 0, _MOST_SHARE),
        means=figures("a mean", message.means, -_MOST_MEAN, _MOST_MEAN),
        mean_errors=figures("a standard error", message.mean_errors, 0, _MOST_MEAN),
    )


def _bit_table_from_wire(message: analyzer_pb2.BitTable) -> BitTable:
    cohorts = whole("the number of cohorts", len(message.cohort_sizes), MAX_COHORTS)
    bits, rest = divmod(len(message.bit_counts), cohorts)
    if rest:
        raise WireError(
            f"there are {len(message.bit_counts)} counts of bits for {cohorts} cohorts; "
            "each must have as many"
        )
    whole("the number of bits", bits, MAX_BITS)
    return BitTable(
        cohort_sizes=_counts(message.cohort_sizes),
        bit_counts=_counts(message.bit_counts).reshape(cohorts, bits),
    )


def _counts(fields: Sequence[int]) -> NDArray[np.int64]:
    most = max(fields, default=0)
    if most > MAX_USERS:
        raise WireError(f"a count is {most}; it may be at most {MAX_USERS}")
    return np.array(fields, dtype=np.int64)


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
