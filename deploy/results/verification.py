"""
Check a released result against its signed task, as far as an operator's machine can.

The task is signed and immutable; the result is only the analyzer's word. Every figure that follows
from the task and the counts is computed again.
"""

from typing import Final

from common.accounting.guarantees import guarantees
from common.crypto.signing import SignedTask
from common.errors import WireError
from common.messages.result import BitTable, Estimate, KeyValues, Means, Result
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec
from common.task.task import Task

_CLOSE: Final = 0.99
"""The analyzer of another version may bound an epsilon slightly tighter than this program."""


def check_fits(result: Result, task: Task) -> None:
    """
    Check that a result is of a task: its digest, its parameters, and possible counts.

    Raises:
        WireError: It is not; names the first difference.
    """
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    buckets = task.item_mechanism.buckets if task.kind == "categorical" else 0
    for name, said, signed in (
        ("estimate", _form(result.estimate), _form_of(task)),
        ("digest", result.task_digest.hex(), digest.hex()),
        ("protocol", result.protocol, task.protocol),
        ("mechanism", result.mechanism, task.mechanism.name),
        ("number of buckets", result.buckets, buckets),
        ("local_epsilon", result.local_epsilon, task.local_epsilon),
    ):
        if said != signed:
            raise WireError(f"the task's {name} is {signed}, and the result says {said}")
    if result.n_users < task.n_min:
        raise WireError(
            f"the result is of {result.n_users} users; the task is released from {task.n_min} on"
        )
    _check_reports(result, task)


def _form(estimate: Estimate) -> str:
    """Describe the shape of an estimate."""
    match estimate:
        case BitTable():
            return "{} cohorts of {} bits".format(*estimate.bit_counts.shape)
        case KeyValues():
            owners = "without" if estimate.owners is None else "with"
            return f"{len(estimate.means_with_fakes)} keys {owners} owners"
        case Means():
            return f"{len(estimate.means)} {'un' * estimate.unbiased}biased means"
    return f"{len(estimate.frequencies)} values"


def _form_of(task: Task) -> str:
    """Describe the shape of the estimate that a task leads to."""
    match task.mechanism:
        case RapporSpec(cohorts=cohorts, bits=bits):
            return f"{cohorts} cohorts of {bits} bits"
        case KeyValueSpec(key_true_weight=true, key_other_weight=other):
            return f"{task.domain_size} keys {'with' if true > other else 'without'} owners"
        case NumberSpec(projected=projected):
            return f"{task.domain_size} {'un' * (not projected)}biased means"
    return f"{task.domain_size} values"


def _check_reports(result: Result, task: Task) -> None:
    """
    Check the numbers of sentinels, of reports, and of those refused.

    The result counts the sentinels that the shuffler acknowledged. Of others that were planned, any
    number up to the room may have been in the batch. If every report is kept, a sentinel was there
    if one of its reports was seen; if the shuffler samples, all count as there.
    """
    room, planted = max(0, task.target_size - task.n_min), result.n_sentinels
    missing, each = result.n_sentinels_missing, task.reports_per_user
    if not missing <= planted <= room:
        raise WireError(
            f"the result misses {missing} of {planted} sentinels; the task has room for {room}"
        )
    fewest, most = task.batch_reports(result.n_users + room)
    fewest = max(0, fewest - each * room + missing)
    most -= each * (planted - missing) + (room - planted if task.shuffler.kept == 1 else 0)
    if not fewest <= result.n_reports <= most:
        wanted = str(most) if fewest == most else f"{fewest} to {most}"
        raise WireError(
            f"the result is of {result.n_reports} reports; {result.n_users} users of this task "
            f"make {wanted}"
        )
    n_refused, estimate = sum(result.refused.values()), result.estimate
    if n_refused + result.n_dummies > result.n_reports:
        raise WireError(
            f"the result refused {n_refused} reports and counted {result.n_dummies} dummies; "
            f"there were {result.n_reports} reports"
        )
    if isinstance(estimate, BitTable | KeyValues):  # the others state no counts
        by_place = estimate.cohort_sizes if isinstance(estimate, BitTable) else estimate.reports
        if int(by_place.sum()) + n_refused != result.n_reports:
            raise WireError(
                f"the result refused {n_refused} of {result.n_reports} reports, and its estimate "
                f"counts {int(by_place.sum())}"
            )


def check_guarantees(result: Result, task: Task) -> None:
    """
    Compute a result's guarantees again; none may be better than its task and counts allow.

    Raises:
        WireError: A guarantee is missing, or its epsilon or delta is more than 1 % too low; names
            the coalition.
        AccountingError: The accountant has no formula for the task.

    Cost: up to four searches for ε, tenths of a second each.
    """
    found = guarantees(task, result.n_users, sum(result.refused.values()))
    missing = {one.coalition for one in found} - {one.coalition for one in result.guarantees}
    if missing:
        raise WireError(f"the result has no guarantee against {', '.join(sorted(missing))}")
    for stated in result.guarantees:
        known = [one for one in found if one.coalition == stated.coalition]
        if not any(
            stated.epsilon >= _CLOSE * one.epsilon and stated.delta >= _CLOSE * one.delta
            for one in known
        ):
            figures = [f"{one.epsilon:g} at delta {one.delta:g}" for one in known] or ["none"]
            raise WireError(
                f"against {stated.coalition} the result states epsilon {stated.epsilon:g} at delta "
                f"{stated.delta:g}; this program finds {' or '.join(figures)}"
            )
