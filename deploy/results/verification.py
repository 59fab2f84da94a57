"""Check the figures of a result that follow from its signed task. Run by the operator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shuffledp.common.accounting.guarantees import guarantees, published_claim
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import WireError
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.messages.result import (
    BitTable,
    Estimate,
    FoundValues,
    KeyValues,
    Means,
    Result,
    ShareTables,
)
from shuffledp.common.task.specs import KeyValueSpec, OpenSpec, RangedSpec, RapporSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import TableSpec

_MIN_STATED_SHARE: Final = 0.99
"""Minimum ratio of stated to recomputed figures; another version may have tighter bounds."""


def check_fits(result: Result, task: Task) -> None:
    """Check a result's digest, parameters and counts; raise WireError with the first difference."""
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    buckets = task.mechanism.item_buckets
    for name, stated, signed in (
        ("estimate", _estimate_shape(result.estimate), _task_shape(task)),
        ("digest", result.task_digest.hex(), digest.hex()),
        ("protocol", result.protocol, task.protocol),
        ("mechanism", result.mechanism, task.mechanism.name),
        ("number of buckets", result.buckets, buckets),
        ("local_epsilon", result.local_epsilon, task.local_epsilon),
    ):
        if stated != signed:
            raise WireError(f"the result's {name} is {stated}; the task's is {signed}")
    if result.n_users < task.n_min:
        rule = f"the task needs at least {task.n_min}"
        raise WireError(f"the result has {result.n_users} users; {rule}")
    if sum(result.waived.by_length) > result.n_users + result.n_sentinels:
        raise WireError(
            f"the result states the lengths of {sum(result.waived.by_length)} submissions; it has "
            f"{result.n_users} users and {result.n_sentinels} sentinels"
        )
    _check_reports(result, task)


def _estimate_shape(estimate: Estimate) -> str:
    """Return an estimate's kind and size in words."""
    match estimate:
        case BitTable():
            return "{} cohorts of {} bits".format(*estimate.bit_counts.shape)
        case KeyValues():
            owners = "without" if estimate.owners is None else "with"
            return f"{len(estimate.means_with_fakes)} keys {owners} owners"
        case Means():
            return f"{len(estimate.means)} {'un' * estimate.unbiased}biased means"
        case FoundValues():
            return f"values found at {len(estimate.reports)} levels"
        case ShareTables():
            tables = estimate.tables, estimate.attributes
            return _table_shape(*([len(one.shares) for one in each] for each in tables))
    return f"{len(estimate.frequencies)} values"


def _task_shape(task: Task) -> str:
    """Return the kind and size of a task's estimate in words, as `_estimate_shape` does."""
    match task.mechanism:
        case RapporSpec(cohorts=cohorts, bits=bits):
            return f"{cohorts} cohorts of {bits} bits"
        case KeyValueSpec(key_true_weight=true, key_other_weight=other):
            return f"{task.domain_size} keys {'with' if true > other else 'without'} owners"
        case RangedSpec():
            return f"{task.domain_size} {'un' * (not task.protocol_row.biased)}biased means"
        case OpenSpec() as spec:
            return f"values found at {PrefixHashing.of(spec).levels} levels"
        case TableSpec() as spec:
            return _table_shape(spec.view_sizes(), [each.size for each in spec.attributes])
    return f"{task.domain_size} values"


def _table_shape(cells: Sequence[int], values: Sequence[int]) -> str:
    of_cells, of_values = (", ".join(map(str, sizes)) for sizes in (cells, values))
    return f"tables of {of_cells} cells, and attributes of {of_values} values"


def _check_reports(result: Result, task: Task) -> None:
    """
    Check a result's counts of sentinels, reports and dummies; raise WireError if impossible.

    The result counts acknowledged sentinels only; up to target_size - n_min may be in the batch.
    n_sentinels_missing is above 0 only where the shuffler samples, or in a batch released from
    quarantine. A missing sentinel lacks a report, so it has one less to subtract at least.
    """
    room, n_sentinels = max(0, task.target_size - task.n_min), result.n_sentinels
    missing, (shortest, *_, longest) = result.n_sentinels_missing, (*task.lengths, *task.lengths)
    if not missing <= n_sentinels <= room:
        raise WireError(
            f"the result misses {missing} of {n_sentinels} sentinels; at most {room} are possible"
        )
    fewest, _ = task.shuffler.batch_reports(shortest * (result.n_users + room))
    _, most = task.shuffler.batch_reports(longest * (result.n_users + room))
    fewest = max(0, fewest - shortest * room + missing)
    unused = room - n_sentinels if task.shuffler.keep_probability == 1 else 0
    most -= longest * (n_sentinels - missing) + unused
    if not fewest <= result.n_reports <= most:
        expected = str(most) if fewest == most else f"{fewest} to {most}"
        raise WireError(
            f"the result has {result.n_reports} reports; {result.n_users} users of this task "
            f"send {expected}"
        )
    n_refused, estimate = sum(result.refused.values()), result.estimate
    if n_refused + result.n_dummies > result.n_reports:
        raise WireError(
            f"the result has {n_refused} refused reports and {result.n_dummies} dummies, more than "
            f"its {result.n_reports} reports"
        )
    if isinstance(estimate, BitTable | KeyValues | FoundValues):  # those that state counts
        counts = estimate.cohort_sizes if isinstance(estimate, BitTable) else estimate.reports
        if int(counts.sum()) + n_refused != result.n_reports:
            raise WireError(
                f"the result's estimate counts {int(counts.sum())} reports; with {n_refused} "
                f"refused of {result.n_reports} it must count {result.n_reports - n_refused}"
            )


def recompute_guarantees(result: Result, task: Task) -> Result:
    """
    Return a result with recomputed guarantees and published claim.

    Raises WireError if a guarantee is missing, is against an unknown coalition, or is more than
    1 % too strong. Cost: up to four searches for ε, tenths of a second each.
    """
    n_refused = sum(result.refused.values())
    computed = guarantees(task, result.n_users, n_refused, result.waived)
    missing = {row.coalition for row in computed} - {row.coalition for row in result.guarantees}
    if missing:
        raise WireError(f"the result has no guarantee against {', '.join(sorted(missing))}")
    for stated in result.guarantees:
        known = [row for row in computed if row.coalition == stated.coalition]
        if not any(
            stated.epsilon >= _MIN_STATED_SHARE * row.epsilon
            and stated.delta >= _MIN_STATED_SHARE * row.delta
            for row in known
        ):
            first, *others = (
                f"epsilon {rounded_up(row.epsilon)} at delta {rounded_up(row.delta)}"
                for row in (stated, *known)
            )
            raise WireError(
                f"against {stated.coalition} the result states {first}; recomputed: "
                f"{' or '.join(others) or 'none'}"
            )
    claim = published_claim(task, result.n_users, n_refused, result.waived)
    return replace(result, guarantees=computed, published_claim=claim)
