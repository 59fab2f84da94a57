"""The weakest point of a task, its remedies, and their figures."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from analyzer.finalize import mixture_of
from common.accounting.guarantees import guarantees
from common.errors import AccountingError, TaskError
from common.mechanisms.registry import mechanism_of, specify
from common.messages.guarantee import Coalition, Guarantee, claimed, rounded_up
from common.task.dummy_spec import DummySpec
from common.task.task import Task
from deploy.audit.finding import Finding
from deploy.audit.report.audit_report import AuditReport

_USUAL_LOCAL_EPSILON: Final = 4.0
"""Largest local ε that devices accept by default."""
_NOISY: Final = ("mixdump", "od-hp", "hybrid", "sh")
"""Protocols with local noise, tried in this order for a task without."""


@dataclass(frozen=True, slots=True)
class Change:
    """A possible change and its effect."""

    action: str
    """An instruction in a few words; or something that does not help."""
    why: str
    helps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakestPoint:
    """The coalition with the largest ε, and the attacks by it."""

    coalition: Coalition
    guarantee: Guarantee
    """The smallest of the guarantees against it, which all hold at once."""
    equals: tuple[Coalition, ...]
    """Other coalitions with the same ε."""
    attacks: tuple[Finding, ...]
    """See AuditReport.attacks_by."""

    @property
    def measured(self) -> Finding | None:
        """The most important finding that has a gain, if one has."""
        rows = (
            row
            for row in self.attacks
            if row.empirical_epsilon_lower is not None or row.exact_epsilon is not None
        )
        return next(rows, None)


def weakest_point(report: AuditReport) -> WeakestPoint:
    """Return the weakest point of an audited task."""
    best = best_promises(report.guarantees)
    weakest = max(best, key=lambda coalition: best[coalition].epsilon)
    return WeakestPoint(
        coalition=weakest,
        guarantee=best[weakest],
        equals=tuple(
            coalition
            for coalition, promise in best.items()
            if coalition != weakest and promise.epsilon == best[weakest].epsilon
        ),
        attacks=report.attacks_by(weakest),
    )


def best_promises(guarantees: Sequence[Guarantee]) -> dict[Coalition, Guarantee]:
    """Return the guarantee with the smallest ε against each coalition, in their order."""
    best: dict[Coalition, Guarantee] = {}
    for guarantee in guarantees:
        before = best.get(guarantee.coalition, guarantee)
        best[guarantee.coalition] = min(before, guarantee, key=lambda one: one.epsilon)
    return best


def changes(report: AuditReport, point: WeakestPoint) -> tuple[Change, ...]:
    """Return the changes that help against the weakest point, best first, and those that do not."""
    task = report.task
    if point.coalition == "shuffler+analyzer":
        crowd = _NO_CROWD if point.guarantee.delta == 0 else _ONLY_OWN_DUMMIES
        return (_noise(task), _APART, crowd)
    if not task.amplified:
        relying = _ASK_ONCE if task.composition.amplified else _RELY_ON_A_SHUFFLER
        return (_noise(task), relying, _NO_USERS)
    relied = (
        f" The figure counts on a share of {task.assumed_honest_fraction:g} of the users alone; "
        "the rest may be dishonest."
        if point.coalition != "analyzer"
        else ""
    )
    more_users = Change(
        f"Raise n_min, now {task.n_min:,}",
        f"More people then hide each report before anything is released.{relied}",
    )
    dummies = (_MORE_DUMMIES,) if task.composition.dummy_laws else ()
    return (more_users, *dummies, _noise(task))


def _lower_local_epsilon(task: Task) -> float:
    """Return the proposed local ε: half of the task's, or what devices accept at most."""
    return min(task.local_epsilon / 2, _USUAL_LOCAL_EPSILON)


def _stated_local_epsilon(task: Task) -> str:
    return "none" if math.isinf(task.local_epsilon) else rounded_up(task.local_epsilon)


def _noise(task: Task) -> Change:
    other = rounded_up(_lower_local_epsilon(task))
    plan = f"shuffledp plan with --local-cap {other} finds the parameters with the least error"
    if math.isinf(task.local_epsilon):
        return Change(
            "Let every device add noise to its report",
            f"Reports of the protocol {task.protocol} are not randomized: somebody who knows "
            "which reports are yours may know your value. Publish the next task under a protocol "
            "with local noise, such as mixdump or od-hp, and with local_epsilon = "
            f"{other} or less. Shares then become less exact; {plan}.",
        )
    if task.kind == "string":
        action = "Raise permanent or unset, or lower set: they decide what a report gives away"
    elif task.kind == "categorical":
        stated = _stated_local_epsilon(task)
        action = f"Lower local_epsilon, for example from {stated} to {other}"
    else:
        action = "Lower local_epsilon"
    return Change(
        action,
        "Each device then adds more noise to its report, and this noise is all that protects a "
        "person from somebody who knows which report is theirs. The result becomes less exact; "
        f"{plan}. A task never changes: it takes a new one.",
    )


_ASK_ONCE: Final = Change(
    "Leave population out, if these people are never asked again",
    "Permanent responses to a population are the same in every task, so that nothing is claimed "
    "of the shuffler's help. Of a single task it can be claimed.",
)
_APART: Final = Change(
    "Let different organisations operate the shuffler and the analyzer",
    "Let them share no machine, key or administrator, and forbid pooling by contract. This does "
    "not change the figure; it makes it unlikely that the two ever pool what they saw. While one "
    "organisation operates both, this figure is the one that holds.",
)
_NO_CROWD: Final = Change(
    "More users, a larger n_min or a few more dummies do not help here",
    "They hide a report among others from the analyzer alone. Shuffler and analyzer together know "
    "which reports are yours, so that those of nobody else hide them.",
    helps=False,
)
_ONLY_OWN_DUMMIES: Final = Change(
    "More users or a larger n_min do not help here",
    "Shuffler and analyzer together know which reports are yours, so that only the dummies of "
    "your own device hide your report from them. Many more of these would help a little.",
    helps=False,
)
_RELY_ON_A_SHUFFLER: Final = Change(
    "Choose a protocol that relies on a shuffler, such as od-hp",
    "Then the analyzer does not know whose report is whose, and learns much less of one person at "
    "the same error. What shuffler and analyzer learn together stays.",
)
_NO_USERS: Final = Change(
    "More users do not help here",
    "Every report is protected by its own noise alone. More users make shares more exact.",
    helps=False,
)
_MORE_DUMMIES: Final = Change(
    "Raise dummies_per_user",
    "Dummies hide a report among others without anybody more taking part; they cost traffic.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The task with one change, its guarantees and its error."""

    name: str
    weakest_epsilon: float
    """Against the coalition that is the weakest point now."""
    claimed_epsilon: float
    """The task's claim against the analyzer, if the shuffler is honest."""
    error: float
    """Standard error of the share of an average value."""


def variants(report: AuditReport, point: WeakestPoint) -> tuple[Variant, ...]:
    """
    Compute the task as it is and with one change at a time, where its protocol allows the change.

    There are none for other kinds of value than items: `shuffledp plan` weighs their parameters.

    Cost: a few searches for ε, tenths of a second each.
    """
    task, n = report.task, report.n_users
    if task.kind != "categorical":
        return ()
    other, protocols = _lower_local_epsilon(task), [task.protocol]
    if task.composition.local_noise == "none":
        protocols = list(_NOISY)
    noisy = {
        "local_epsilon": other,
        "mechanism": specify(
            task.item_mechanism.name,
            domain_size=task.domain_size,
            buckets=task.item_mechanism.buckets,
            local_epsilon=other,
        ),
    }
    noise = f"local_epsilon = {rounded_up(other)} instead of {_stated_local_epsilon(task)}"
    wanted: list[tuple[str, dict[str, Any], int]] = [
        ("The task as it is", {}, n),
        *((noise, noisy | {"protocol": protocol}, n) for protocol in protocols),
        ("Twice as many users", {}, 2 * n),
    ]
    if task.dummies.law in {"fixed", "fractional"} and task.composition.dummy_laws:
        dummies = DummySpec.averaging(task.dummies.expected_per_user + 1)
        wanted.append(("One more dummy from each user", {"dummies": dummies}, n))
    found: dict[str, Variant] = {}
    for name, fields, n_users in wanted:
        if name in found:
            continue
        try:
            changed = dataclasses.replace(task, central_epsilon=0.0, **fields) if fields else task
            found[name] = _variant(name, changed, n_users, point.coalition)
        except (AccountingError, TaskError):  # the rules of the task's protocol do not allow it
            continue
    return tuple(found.values())


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
