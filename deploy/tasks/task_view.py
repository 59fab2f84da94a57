"""Show a task's parameters, guarantees and state to its operator."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto.hpke import HpkePrivateKey
from shuffledp.common.mechanisms.signed import influence_on
from shuffledp.common.messages.batch import BatchState, BatchStatus, TaskState, TaskSummary
from shuffledp.common.messages.guarantee import Guarantee, delta_warnings, rounded_up
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.shuffling import Shuffling
from shuffledp.common.task.task import FOR_PEOPLE, NONCE_BYTES, Task, honest_share
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.tasks.value_parser import describe_values
from shuffledp.deploy.terminal.durations import format_time, format_times
from shuffledp.deploy.terminal.escape import escaped, visible
from shuffledp.deploy.terminal.tables import CLAIM_ROOM_NOTE, print_guarantees

TASK_STATES: Final = {
    TaskState.OPEN: "open: the analyzer has not received a batch",
    TaskState.OVERDUE: "overdue: the deadline has passed, and the analyzer has not received the "
    "batch: it has expired, cannot be delivered, or is on its way",
    TaskState.STAGED: "staged: the analyzer has the whole batch and is computing the estimate",
    TaskState.RELEASED: "released: print the result with shuffledp result",
    TaskState.UNUSABLE: "unusable: the batch cannot be released; erase it with batch drop",
    TaskState.QUARANTINED: "quarantined: decide with shuffledp batch release, or batch drop",
}
_BATCH_STATES: Final[Mapping[BatchState, str]] = {
    BatchState.COLLECTING: "Collecting. Users can submit until the batch reaches its target size "
    "or the deadline passes.",
    BatchState.CLOSED: "Closed, being shuffled. The batch is closed. The shuffler is permuting its "
    "reports.",
    BatchState.PERMUTED: "Shuffled, being delivered. The reports are permuted and on their way to "
    "the {receiver}.",
    BatchState.SENT: "Sent, being confirmed. The shuffler sent all reports, and waits for the "
    "{receiver} to confirm the batch.",
    BatchState.DELIVERED: "Delivered, being erased. The {holder} has all reports. The shuffler is "
    "destroying its copies.",
    BatchState.ERASED: "Delivered and erased. The {holder} has all reports. The shuffler destroys "
    "the key, then its own copies. It may keep hashes of sealed reports for some weeks, for "
    "inclusion proofs, and keeps the numbers of users and of refused submissions.",
    BatchState.EXPIRED: "Expired: nothing was released. At the deadline the batch had fewer than "
    "n_min users. The shuffler destroys the key, then their submissions; it keeps no hashes. It "
    "keeps the numbers of users and of refused submissions.",
    BatchState.QUARANTINED: "Quarantined: nothing was released. The {receiver} refused the batch. "
    "The shuffler keeps it, sealed, for the operator to investigate, until shuffledp batch erase "
    "or its end date; the logs of both services name the kind of error.",
    BatchState.DROPPED: "Dropped: nothing was released. The operator dropped the batch, or its end "
    "date passed before the {receiver} took it. The shuffler destroys the key, then the files.",
    BatchState.UNCONFIRMED: "Erased, delivery unconfirmed. The operator dropped the batch, or its "
    "end date passed, after it was sent and before the {receiver} confirmed it. The {receiver} may "
    "have all of it, {and_may} release a result. The shuffler destroys the key, then the files.",
}
"""A headline, and its meaning."""
DELIVERED: Final = frozenset({BatchState.DELIVERED, BatchState.ERASED})
LOST: Final = frozenset(
    {BatchState.EXPIRED, BatchState.QUARANTINED, BatchState.DROPPED, BatchState.UNCONFIRMED}
)
"""States in which the analyzer confirmed the batch, and in which it was not released."""
SENTINELS_INCLUDED: Final = "an operator's sentinels included; n_min must be met without them"
"""Printed beside every number of users."""


def describe_state(state: BatchState, task: Task | None) -> tuple[str, str]:
    """Return a batch's state and its meaning; the first of two shufflers delivers to the second."""
    headline, _, meaning = _BATCH_STATES[state].partition(". ")
    two = task is not None and task.relay is not None
    receiver = "second shuffler" if two else "analyzer"
    holder = receiver if task else "analyzer, or a second shuffler,"
    and_may = "and the analyzer may" if two else "and may"
    return headline, meaning.format(receiver=receiver, holder=holder, and_may=and_may)


def preview(draft: TaskDraft, *, now: float) -> Task:
    """Return a draft's task at `now` (UNIX time) with new keys if it has none; raise TaskError."""
    # Imported here: other commands do not need the analyzer's code.
    from shuffledp.analyzer.task_builder import complete  # noqa: PLC0415

    key = HpkePrivateKey.generate(draft.suite).public_key().raw
    draft = dataclasses.replace(draft, shuffler_key=draft.shuffler_key or key)
    if (relay := draft.relay) and not relay.key:
        key = HpkePrivateKey.generate(draft.suite).public_key().raw
        draft = dataclasses.replace(draft, relay=dataclasses.replace(relay, key=key))
    return complete(draft, analyzer_key=key, nonce=bytes(NONCE_BYTES), now=now)


def describe_claim(task: Task) -> str:
    """Return sentences on the task's claimed guarantees and its budget."""
    honest = "even if no other user is honest"
    if task.protocol_row.amplified:
        users = honest_share(task.n_min, task.assumed_honest_fraction)
        honest = f"if {users:,} users are honest"
    releases = "all releases about this population" if task.population else "this release"
    warnings = [f"\nWarning: {each}." for each in claim_warnings(task)]
    room = f"\n{CLAIM_ROOM_NOTE}" if task.central_epsilon < task.local_epsilon else ""
    together = "the shuffler and analyzer together"
    if task.relay:
        honest = "if both shufflers are honest"
        one = " or ".join(each.name for each in task.shufflers)
        together = f"the analyzer and either shuffler together, if {one} is honest"
    return (
        f"Claimed guarantees: epsilon {rounded_up(task.central_epsilon)} at delta "
        f"{rounded_up(task.delta)} against the analyzer, {honest}; "
        f"epsilon {rounded_up(task.coalition_epsilon)} against {together}.\n"
        f"Privacy budget for {releases}: epsilon {rounded_up(task.budget_epsilon)} at delta "
        f"{rounded_up(task.budget_delta)} against the analyzer.{room}{''.join(warnings)}"
    )


def claim_warnings(task: Task) -> tuple[str, ...]:
    """Warn of a δ, or else a budget's δ, too large for the people whom the task may count."""
    if not task.protocol_row.amplified:
        return ()
    people = task.target_size
    return delta_warnings(task.delta, people) or delta_warnings(
        task.budget_delta, people, "budget_delta"
    )


def task_guarantees(task: Task) -> tuple[Guarantee, ...]:
    """Return a task's guarantees for n_min users, one per coalition."""
    # Imported here: the accountant takes half a second to load.
    from shuffledp.common.accounting import guarantees  # noqa: PLC0415

    return guarantees.guarantees_under(PrivacyParameters.of(task), task.n_min)


def print_task(task: Task, console: Console) -> None:
    """Print a task's parameters and its guarantees for n_min users."""
    table = Table(show_header=False)
    for name, value in parameter_rows(task):
        table.add_row(name, escaped(value))
    console.print(table)
    title = f"Guarantees for each of {task.n_min:,} or more users"
    print_guarantees(task_guarantees(task), title, console)


def parameter_rows(task: Task) -> list[tuple[str, str]]:
    """Return a task's parameters as (name, description) pairs."""
    mechanism, dummies = task.mechanism, task.dummies
    hashed = f" into {mechanism.hash_buckets:,} buckets" if mechanism.hash_buckets else ""
    if len(task.views) > 1:
        sizes = map("{:,}".format, dict.fromkeys((min(task.view_sizes), max(task.view_sizes))))
        hashed = f" with {len(task.views)} views of {' to '.join(sizes)} items"
    added, influence = dummies.summary, influence_on(task)
    if influence is not None:
        up, down = map(rounded_up, influence)
        added += f"; one dishonest submission moves an item by up to +{up} or -{down} users"
    least, *larger = map("{:,}".format, task.envelope_sizes)
    shufflers = [("shuffler", _describe_shuffler(task.shuffler))]
    if task.relay:
        shufflers = [("coalition epsilon", rounded_up(task.coalition_epsilon))]
        for hop, (place, each) in enumerate(zip(("first", "second"), task.shufflers, strict=True)):
            does = _describe_shuffler(task.hop(hop))
            shufflers.append((f"{place} shuffler", f"{each.name}: {does}"))
    average = f"{task.expected_envelope_bytes:,.0f} on average"
    size = f"{least} to {larger[-1]}, {average}" if larger else least
    return [
        *((name, str(getattr(task, name))) for name in FOR_PEOPLE if getattr(task, name)),
        ("protocol", task.protocol),
        ("values", describe_values(task)),
        ("mechanism", f"{mechanism.name}{hashed}"),
        ("local epsilon", rounded_up(task.local_epsilon)),
        ("dummies by users", added if dummies.maximum else "none"),
        *shufflers,
        ("delta", rounded_up(task.delta)),
        ("minimum users (n_min)", f"{task.n_min:,}"),
        ("target size", f"{task.target_size:,}"),
        ("deadline", format_time(task.deadline)),
        ("assumed honest share", f"{task.assumed_honest_fraction:g}"),
        ("population", task.population or "none: users take part in no other task"),
        (
            "budget",
            f"epsilon {rounded_up(task.budget_epsilon)} at delta {rounded_up(task.budget_delta)}",
        ),
        (
            "one-time tokens",
            f"of {task.tokens.issuer}"
            if task.tokens
            else "none: anybody may submit any number of times",
        ),
        ("suite", task.suite),
        ("bytes per user", size),
    ]


def _describe_shuffler(shuffler: Shuffling) -> str:
    steps = ["permutes"]
    if shuffler.keep_probability < 1:
        steps.append(
            f"keeps each report with probability {shuffler.keep_probability:.4g} and drops the "
            "others"
        )
    if shuffler.most_dummies:
        steps.append(f"adds dummies: {shuffler.noises[0].distribution}")
    return ", ".join(steps)


def print_state(digest: TaskDigest, task: Task, summary: TaskSummary, console: Console) -> None:
    """Print a task and its state at the analyzer."""
    console.print(f"Task {digest.hex()}", soft_wrap=True)
    console.print(f"At the analyzer: {TASK_STATES[summary.state]}.", markup=False)
    if summary.failure:
        console.print(f"Reason: {visible(summary.failure)}.", markup=False)
    if summary.n_users:
        console.print(f"Users in its batch: {summary.n_users:,}, {SENTINELS_INCLUDED}.")
    print_task(task, console)


def print_batch(status: BatchStatus | None, console: Console, task: Task | None = None) -> None:
    """Print the state of a task's batch at the shuffler; None if no device has fetched the task."""
    where = "At the first shuffler" if task and task.relay else "At the shuffler"
    if status is None:
        console.print(f"{where}: no device has fetched this task yet.")
        return
    headline, meaning = describe_state(status.state, task)
    users = f"; users: {status.n_users:,} ({SENTINELS_INCLUDED})" if status.n_users else ""
    console.print(f"{where}: {headline.lower()}{users}. {meaning}")
    if status.waits_for:
        console.print(f"It waits for the {status.waits_for}, which did not take it last time.")
    if status.reason:
        console.print(f"Reason: {visible(status.reason)}.", markup=False)
    if status.state not in DELIVERED:
        console.print(f"It releases no batch with fewer users than n_min, {status.n_min:,}.")


def print_relay(status: BatchStatus | None, console: Console) -> None:
    """Print the state of a task's batch at its second shuffler; None if none was announced."""
    if status is None:
        console.print("At the second shuffler: no batch of this task has been announced yet.")
        return
    users = f" of {status.n_users:,} users" if status.n_users else ""
    waits = f", waiting for the {status.waits_for}" if status.waits_for else ""
    reason = f" Reason: {visible(status.reason)}." if status.reason else ""
    if status.state in LOST:
        waits = ", and the task gets no result"
    console.print(
        f"At the second shuffler: {status.state}{waits}; {status.n_layers:,} layers{users} "
        f"arrived, {status.n_discarded:,} of them were discarded.{reason}",
        markup=False,
    )


def batch_as_json(status: BatchStatus | None) -> dict[str, Any]:
    """Return as JSON a batch's state, null if no device has fetched the task, and user count."""
    known: dict[str, Any] = {"batch_n_users": status.n_users} if status and status.n_users else {}
    known |= {"batch_waits_for": status.waits_for} if status and status.waits_for else {}
    known |= {"batch_reason": status.reason} if status and status.reason else {}
    return {"batch": status.state if status else None, **known}


def print_list(summaries: Sequence[TaskSummary], console: Console) -> None:
    """Print each task's digest and, on a second line, its state and parameters."""
    times = format_times([summary.deadline for summary in summaries])
    for deadline, summary in zip(times, summaries, strict=True):
        users = f"; users {summary.n_users:,}" if summary.n_users else ""
        console.print(summary.task_digest.hex(), soft_wrap=True)
        described = (
            f"{summary.state}{users}; n_min {summary.n_min:,}; deadline {deadline}; "
            f"{visible(summary.protocol)} over {summary.domain_size:,}; "
            f"{visible(summary.population) or 'no population'}"
        )
        console.print(Padding.indent(Text(described), 2), highlight=False)
    note = " Numbers of users include sentinels, which do not count towards n_min."
    console.print(f"Tasks: {len(summaries):,}.{note if summaries else ''}")


def as_json(task: Task) -> Any:  # noqa: ANN401  # JSON
    """Return the published JSON of a task, parsed."""
    return json.loads(task.to_bytes())
