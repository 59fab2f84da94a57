"""What to change about the weakest point of a task, in words and in figures."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.finalize import mixture_of
from common.accounting.guarantees import guarantees
from common.errors import AccountingError, TaskError
from common.mechanisms.registry import mechanism_of, specify
from common.messages.guarantee import Coalition, claimed, rounded_up
from common.protocols import Kind
from common.task.dummy_spec import DummySpec
from common.task.task import Task
from deploy.audit.report import AuditReport
from deploy.audit.weakest import WeakestPoint, best_promises

USUAL_LOCAL_EPSILON: Final = 4.0
"""What devices accept unless their owner says otherwise."""

_NOISY: Final = ("mixdump", "od-hp", "hybrid", "sh")
"""Protocols with local noise; the first that a task fits stands in for one without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that could be changed, and what becomes of it."""

    action: str
    """What to do, as an order of a few words; or what does not help."""
    why: str
    """What it would do."""
    helps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The task with one thing changed: what its promises and its error would be."""

    name: str
    weakest_epsilon: float
    """Against the coalition that is the weakest point now."""
    claimed_epsilon: float
    """What the task would claim: against the analyzer, if the shuffler is honest."""
    error: float
    """Standard error of a share, of a value that is as frequent as the average one."""


def changes(report: AuditReport, point: WeakestPoint) -> tuple[Change, ...]:
    """Say what helps against the weakest point, the best first, and what does not."""
    task, pair = report.task, point.coalition == "shuffler+analyzer"
    if pair:
        crowd = _NO_CROWD if point.guarantee.delta == 0 else _ONLY_OWN_DUMMIES
        return (_noise(task), _APART, crowd)
    if not task.amplified:
        relying = _ASK_ONCE if task.composition.amplified else _RELY_ON_A_SHUFFLER
        return (_noise(task), relying, _NO_USERS)
    found = [_more_users(task, point.coalition)]
    if task.composition.dummy_laws:
        found.append(_MORE_DUMMIES)
    return (*found, _noise(task))


def variants(report: AuditReport, point: WeakestPoint) -> tuple[Variant, ...]:
    """
    Work out the task as it is, and with one thing changed at a time; what cannot be is left out.

    Of other kinds of value than items there are none: `shuffledp plan` weighs their parameters.

    Cost: a few searches for ε, tenths of a second each.
    """
    task, n = report.task, report.n_users
    if task.kind != "categorical":
        return ()
    wanted: list[tuple[str, Callable[[], Task], int]] = [("The task as it is", lambda: task, n)]
    other = lower_local_epsilon(task)
    name = f"local_epsilon = {rounded_up(other)} instead of {_local(task)}"
    wanted.append((name, lambda: with_noise(task, other), n))
    wanted.append(("Twice as many users", lambda: task, 2 * n))
    if task.dummies.law in {"fixed", "fractional"} and task.composition.dummy_laws:
        wanted.append(("One more dummy from each user", lambda: _with_a_dummy_more(task), n))
    found = []
    for name, make, n_users in wanted:
        try:
            found.append(_variant(name, make(), n_users, point.coalition))
        except (AccountingError, TaskError):  # the rules of the task's protocol do not allow it
            continue
    return tuple(found)


def lower_local_epsilon(task: Task) -> float:
    """Give the local ε that is proposed: half as much, or what devices accept at most."""
    return min(task.local_epsilon / 2, USUAL_LOCAL_EPSILON)


def with_noise(task: Task, local_epsilon: float) -> Task:
    """
    Give a task with another local ε, by another protocol where its own has no noise. No claim.

    Raises:
        TaskError: There is no such task.
    """
    spec = specify(
        task.item_mechanism.name,
        domain_size=task.domain_size,
        buckets=task.item_mechanism.buckets,
        local_epsilon=local_epsilon,
    )
    names = [task.protocol] if task.composition.local_noise != "none" else list(_NOISY)
    for name in names:
        try:
            return dataclasses.replace(
                task,
                protocol=name,
                mechanism=spec,
                local_epsilon=local_epsilon,
                central_epsilon=0.0,
            )
        except TaskError:
            continue
    raise TaskError(f"no known protocol adds local noise to {task.protocol}")


def _with_a_dummy_more(task: Task) -> Task:
    dummies = DummySpec.averaging(task.dummies.expected_per_user + 1)
    return dataclasses.replace(task, dummies=dummies, central_epsilon=0.0)


def _variant(name: str, task: Task, n_users: int, weakest: Coalition) -> Variant:
    promised = guarantees(task, n_users, 0)
    counted = round(n_users * (1 + task.dummies.expected_per_user))
    mixture = mixture_of(task, n_users, counted=counted)
    shares = np.full(task.domain_size, 1 / task.domain_size)
    return Variant(
        name=name,
        weakest_epsilon=best_promises(promised)[weakest].epsilon,
        claimed_epsilon=claimed(promised).epsilon,
        error=math.sqrt(float(mechanism_of(task).variance(shares, mixture).mean())),
    )


def _local(task: Task) -> str:
    return "none" if math.isinf(task.local_epsilon) else rounded_up(task.local_epsilon)


def _noise(task: Task) -> Change:
    other = rounded_up(lower_local_epsilon(task))
    if math.isinf(task.local_epsilon):
        return Change(
            action="Let every device add noise to its report",
            why=(
                f"Reports of the protocol {task.protocol} are not randomized: whoever knows which "
                "reports are yours may know your value. Publish the next task under a protocol "
                "with local noise, such as mixdump or od-hp, and with local_epsilon = "
                f"{other} or less. Shares then become less exact; shuffledp plan with --local-cap "
                f"{other} finds the parameters with the least error."
            ),
        )
    if task.kind != "categorical":
        return Change(action=_LESS[task.kind], why=_WHY_LESS)
    return Change(
        action=f"Lower local_epsilon, for example from {_local(task)} to {other}",
        why=(
            "Each device then adds more noise to its report, and this noise is all that "
            "protects a person from somebody who knows which report is theirs. Shares become less "
            f"exact; shuffledp plan with --local-cap {other} finds the parameters with the least "
            "error. A task never changes: it takes a new one."
        ),
    )


_LESS: Final[dict[Kind, str]] = {
    "string": "Raise permanent or unset, or lower set: they decide what a report gives away",
    "mean": "Lower local_epsilon",
    "vector": "Lower local_epsilon",
    "key-value": "Lower local_epsilon",
}
_WHY_LESS: Final = (
    "Each device then adds more noise to its report, and this noise is all that protects a person "
    "from somebody who knows which report is theirs. The result becomes less exact; shuffledp plan "
    "with --local-cap finds the parameters with the least error. A task never changes: it takes a "
    "new one."
)

_ASK_ONCE: Final = Change(
    action="Leave population out, if these people are never asked again",
    why=(
        "Permanent responses to a population are the same in every task, so that nothing is "
        "claimed of the shuffler's help. Of a single task it can be claimed."
    ),
)

_APART: Final = Change(
    action="Let different organisations operate the shuffler and the analyzer",
    why=(
        "Let them share no machine, key or administrator, and forbid pooling by contract. This "
        "does not change the figure; it makes it unlikely that the two ever pool what they saw. "
        "While one organisation operates both, this figure is the one that holds."
    ),
)

_NO_CROWD: Final = Change(
    action="More users, a larger n_min or a few more dummies do not help here",
    why=(
        "They hide a report among others from the analyzer alone. Shuffler and analyzer together "
        "know which reports are yours, so that those of nobody else hide them."
    ),
    helps=False,
)

_ONLY_OWN_DUMMIES: Final = Change(
    action="More users or a larger n_min do not help here",
    why=(
        "Shuffler and analyzer together know which reports are yours, so that only the dummies of "
        "your own device hide your report from them. Many more of these would help a little."
    ),
    helps=False,
)

_RELY_ON_A_SHUFFLER: Final = Change(
    action="Choose a protocol that relies on a shuffler, such as od-hp",
    why=(
        "Then the analyzer does not know whose report is whose, and learns much less of one "
        "person at the same error. What shuffler and analyzer learn together stays."
    ),
)

_NO_USERS: Final = Change(
    action="More users do not help here",
    why="Every report is protected by its own noise alone. More users make shares more exact.",
    helps=False,
)

_MORE_DUMMIES: Final = Change(
    action="Raise dummies_per_user",
    why="Dummies hide a report among others without anybody more taking part; they cost traffic.",
)


def _more_users(task: Task, coalition: Coalition) -> Change:
    relied = (
        f" The figure counts on a share of {task.assumed_honest_fraction:g} of the users alone; "
        "the rest may be dishonest."
        if coalition != "analyzer"
        else ""
    )
    return Change(
        action=f"Raise n_min, now {task.n_min:,}",
        why=f"More people then hide each report before anything is released.{relied}",
    )
