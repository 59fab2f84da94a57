"""
Check a released result against its signed task, as far as an operator's machine can.

The task is signed and immutable; the result is only the analyzer's word. Every figure that follows
from the task and the counts is computed again.
"""

from collections.abc import Mapping
from typing import Final

from common.accounting.guarantees import guarantees
from common.crypto.signing import SignedTask
from common.errors import WireError
from common.messages.result import BitTable, Estimate, Histogram, KeyValues, Means, Result
from common.protocols import Kind
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task

_CLOSE: Final = 0.99
"""The analyzer of another version may bound an epsilon slightly tighter than this program."""
_FORMS: Final[Mapping[Kind, type[Estimate]]] = {
    "categorical": Histogram,
    "string": BitTable,
    "mean": Means,
    "vector": Means,
    "key-value": KeyValues,
}


def check_fits(result: Result, task: Task) -> None:
    """
    Check that a result is of a task: its digest, its parameters, and possible counts.

    Raises:
        WireError: It is not; names the first difference.
    """
    if not isinstance(result.estimate, _FORMS[task.kind]):
        raise WireError(f"the task collects {task.kind} data, and the result is of another kind")
    _check_estimate(result.estimate, task)
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    if digest != result.task_digest:
        raise WireError(
            f"the result is of task {result.task_digest.hex()}, and the task is {digest.hex()}"
        )
    buckets = task.item_mechanism.buckets if task.kind == "categorical" else 0
    for name, said, signed in (
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


def _check_estimate(estimate: Estimate, task: Task) -> None:
    spec = task.mechanism
    if isinstance(estimate, BitTable):
        wanted = (spec.cohorts, spec.bits) if isinstance(spec, RapporSpec) else None
        if estimate.bit_counts.shape != wanted:
            raise WireError(
                f"the task has filters of {wanted} cohorts and bits, and the result of "
                f"{estimate.bit_counts.shape}"
            )
        return
    if isinstance(estimate, KeyValues):
        size = len(estimate.means_with_fakes)
        pairs = spec_as(spec, KeyValueSpec)
        asked = pairs.key_true_weight > pairs.key_other_weight
        if asked != (estimate.owners is not None):
            found = "has" if estimate.owners else "no"
            raise WireError(
                f"the task has the weights {pairs.key_true_weight} and {pairs.key_other_weight} "
                f"for whether a key is owned, and the result {found} shares of owners"
            )
    elif isinstance(estimate, Means):
        size = len(estimate.means)
        if estimate.unbiased == (spec_as(spec, NumberSpec).projected > 0):
            said = "without" if estimate.unbiased else "with"
            raise WireError(
                f"the task's mechanism is {spec.name}, and the result has means {said} bias"
            )
    else:
        size = len(estimate.frequencies)
    if task.domain_size != size:
        raise WireError(f"the task has {task.domain_size} values, and the result {size}")


def _check_reports(result: Result, task: Task) -> None:
    room, planted = max(0, task.target_size - task.n_min), result.n_sentinels
    if not result.n_sentinels_missing <= planted <= room:
        raise WireError(
            f"the result misses {result.n_sentinels_missing} of {planted} sentinels; "
            f"the task has room for {room}"
        )
    fewest, most = _report_range(result, task, room)
    if not fewest <= result.n_reports <= most:
        wanted = str(most) if fewest == most else f"{fewest} to {most}"
        raise WireError(
            f"the result is of {result.n_reports} reports; {result.n_users} users of this task "
            f"make {wanted}"
        )
    n_refused = sum(result.refused.values())
    if n_refused + result.n_dummies > result.n_reports:
        raise WireError(
            f"the result refused {n_refused} reports and counted {result.n_dummies} dummies; "
            f"there were {result.n_reports} reports"
        )
    estimate = result.estimate
    if isinstance(estimate, BitTable | KeyValues):  # the others state no counts
        by_place = estimate.cohort_sizes if isinstance(estimate, BitTable) else estimate.reports
        if int(by_place.sum()) + n_refused != result.n_reports:
            raise WireError(
                f"the result refused {n_refused} of {result.n_reports} reports, and its estimate "
                f"counts {int(by_place.sum())}"
            )


def _report_range(result: Result, task: Task, room: int) -> tuple[int, int]:
    """
    Return the least and the largest number of a batch's reports without its sentinels.

    The result counts the sentinels that the shuffler acknowledged. Of others that were planned, any
    number up to the room may have been in the batch. If every report is kept, a sentinel was there
    if one of its reports was seen; if the shuffler samples, all count as there.
    """
    planted, others = result.n_sentinels, room - result.n_sentinels
    fewest, most = task.batch_reports(result.n_users + room)
    seen = task.reports_per_user * (planted - result.n_sentinels_missing)
    seen += others if task.shuffler.kept == 1 else 0
    return max(0, fewest - task.reports_per_user * room + result.n_sentinels_missing), most - seen


def check_guarantees(result: Result, task: Task) -> None:
    """
    Check that a result's guarantees are no better than its task, users and refused reports allow.

    Every guarantee is computed again, by the accountant of the analyzer.

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
