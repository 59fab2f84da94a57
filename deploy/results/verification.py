"""Check the figures of a result that follow from its signed task. Run by the operator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shuffledp.common.accounting.guarantees import guarantees, published_claim
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import WireError
from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.messages import result
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task import specs, view_specs
from shuffledp.common.task.task import Task

_MIN_STATED_SHARE: Final = 0.99
"""Minimum ratio of stated to recomputed figures; another version may have tighter bounds."""


def check_fits(found: result.Result, task: Task) -> None:
    """Check a result's digest, parameters and counts; raise WireError with the first difference."""
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    buckets, (shape, counts) = task.mechanism.item_buckets, _estimate_shape(found.estimate)
    for name, stated, signed in (
        ("estimate", shape, _task_shape(task)),
        ("digest", found.task_digest.hex(), digest.hex()),
        ("protocol", found.protocol, task.protocol),
        ("mechanism", found.mechanism, task.mechanism.name),
        ("number of buckets", found.buckets, buckets),
        ("local_epsilon", found.local_epsilon, task.local_epsilon),
    ):
        if stated != signed:
            raise WireError(f"the result's {name} is {stated}; the task's is {signed}")
    if found.n_users < task.n_min:
        rule = f"the task needs at least {task.n_min}"
        raise WireError(f"the result has {found.n_users} users; {rule}")
    if sum(found.waived.by_length) > found.n_users + found.n_sentinels:
        raise WireError(
            f"the result states the lengths of {sum(found.waived.by_length)} submissions; it has "
            f"{found.n_users} users and {found.n_sentinels} sentinels"
        )
    _check_reports(found, counts, task)


def _estimate_shape(estimate: result.Estimate) -> tuple[str, Counts | None]:
    """Return an estimate's kind and size in words, and the counts of reports that it states."""
    match estimate:
        case result.BitTable(cohort_sizes=sizes, bit_counts=counts):
            return "{} cohorts of {} bits".format(*counts.shape), sizes
        case result.KeyValues(reports=reports, owners=owners):
            return f"{len(reports)} keys {'with' if owners else 'without'} owners", reports
        case result.Means(means=means, unbiased=unbiased):
            return f"{len(means)} {'un' * unbiased}biased means", None
        case result.FoundValues(reports=reports):
            return f"values found at {len(reports)} levels", reports
        case result.ShareTables(tables=tables, attributes=attributes):
            cells, values = ([len(one.shares) for one in each] for each in (tables, attributes))
            return _table_shape(cells, values), None
    return f"{len(estimate.frequencies)} values", None


def _task_shape(task: Task) -> str:
    """Return the kind and size of a task's estimate in words, as `_estimate_shape` does."""
    match task.mechanism:
        case specs.RapporSpec(cohorts=cohorts, bits=bits):
            return f"{cohorts} cohorts of {bits} bits"
        case specs.KeyValueSpec(key_true_weight=true, key_other_weight=other):
            return f"{task.domain_size} keys {'with' if true > other else 'without'} owners"
        case specs.RangedSpec():
            return f"{task.domain_size} {'un' * (not task.protocol_row.biased)}biased means"
        case specs.OpenSpec() as spec:
            return f"values found at {PrefixHashing.of(spec).levels} levels"
        case view_specs.TableSpec() as spec:
            return _table_shape(spec.view_sizes(), [each.size for each in spec.attributes])
    return f"{task.domain_size} values"


def _table_shape(cells: Sequence[int], values: Sequence[int]) -> str:
    of_cells, of_values = (", ".join(map(str, sizes)) for sizes in (cells, values))
    return f"tables of {of_cells} cells, and attributes of {of_values} values"


def _check_reports(found: result.Result, counts: Counts | None, task: Task) -> None:
    """
    Check a result's counts of sentinels, reports and dummies; raise WireError if impossible.

    `counts` are the reports that its estimate states, if it does.

    The result counts acknowledged sentinels only; up to target_size - n_min may be in the batch.
    n_sentinels_missing is above 0 only where the shuffler samples, or in a batch released from
    quarantine. A missing sentinel lacks a report, so it has one less to subtract at least.
    """
    room, n_sentinels = max(0, task.target_size - task.n_min), found.n_sentinels
    missing, (shortest, *_, longest) = found.n_sentinels_missing, (*task.lengths, *task.lengths)
    if not missing <= n_sentinels <= room:
        raise WireError(
            f"the result misses {missing} of {n_sentinels} sentinels; at most {room} are possible"
        )
    fewest, _ = task.shuffler.batch_reports(shortest * (found.n_users + room))
    _, most = task.shuffler.batch_reports(longest * (found.n_users + room))
    fewest = max(0, fewest - shortest * room + missing)
    unused = room - n_sentinels if task.shuffler.keep_probability == 1 else 0
    most -= longest * (n_sentinels - missing) + unused
    if not fewest <= found.n_reports <= most:
        expected = str(most) if fewest == most else f"{fewest} to {most}"
        raise WireError(
            f"the result has {found.n_reports} reports; {found.n_users} users of this task "
            f"send {expected}"
        )
    n_refused = sum(found.refused.values())
    if n_refused + found.n_dummies > found.n_reports:
        raise WireError(
            f"the result has {n_refused} refused reports and {found.n_dummies} dummies, more than "
            f"its {found.n_reports} reports"
        )
    if counts is not None and int(counts.sum()) + n_refused != found.n_reports:
        raise WireError(
            f"the result's estimate counts {int(counts.sum())} reports; with {n_refused} "
            f"refused of {found.n_reports} it must count {found.n_reports - n_refused}"
        )


def recompute_guarantees(found: result.Result, task: Task) -> result.Result:
    """
    Return a result with recomputed guarantees and published claim.

    Raises WireError if a guarantee is missing, is against an unknown coalition, or is more than
    1 % too strong. Cost: up to four searches for ε, tenths of a second each.
    """
    n_refused = sum(found.refused.values())
    computed = guarantees(task, found.n_users, n_refused, found.waived)
    missing = {row.coalition for row in computed} - {row.coalition for row in found.guarantees}
    if missing:
        raise WireError(f"the result has no guarantee against {', '.join(sorted(missing))}")
    for stated in found.guarantees:
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
    claim = published_claim(task, found.n_users, n_refused, found.waived)
    return replace(found, guarantees=computed, published_claim=claim)
