"""Remedies for the weakest point of a task."""

import math
from dataclasses import dataclass
from typing import Final

from common.messages.guarantee import rounded_up
from common.protocols import ITEM_KINDS
from common.task.task import Task
from deploy.audit.report.audit_report import AuditReport, WeakestPoint

_USUAL_LOCAL_EPSILON: Final = 4.0
"""Largest local ε that devices accept by default."""


@dataclass(frozen=True, slots=True)
class Change:
    """A possible change to a task, and its effect."""

    action: str
    """A short instruction; if `helps` is false, a change without effect."""
    why: str
    helps: bool = True


def changes(report: AuditReport, point: WeakestPoint) -> tuple[Change, ...]:
    """Return changes that help against the weakest point, best first, then those that do not."""
    task = report.task
    if point.guarantee.coalition in {"shuffler+analyzer", "issuer+analyzer"}:
        return (_noise(task), _INDEPENDENT_OPERATORS, _MORE_REPORTS)
    if point.guarantee.coalition == "analyzer+sybils":
        return (_TOKENS, _noise(task))
    if not task.amplified:
        relying = _ASK_ONCE if task.composition.amplified else _RELY_ON_A_SHUFFLER
        return (_noise(task), relying, _MORE_USERS)
    more_users = Change(
        f"Raise n_min, now {task.n_min:,}",
        "More people then hide each report before anything is released.",
    )
    dummies = (_MORE_DUMMIES,) if task.composition.dummy_distributions else ()
    return (more_users, *dummies, _noise(task))


def _noise(task: Task) -> Change:
    other = rounded_up(min(task.local_epsilon / 2, _USUAL_LOCAL_EPSILON))
    plan = f"`shuffledp plan --local-cap {other}` finds the parameters with the least error"
    if math.isinf(task.local_epsilon):
        return Change(
            "Let every device add noise to its report",
            f"Reports of the protocol {task.protocol} are not randomized: anyone who knows "
            "which reports are yours may learn your value. Publish the next task under a protocol "
            "with local noise, such as mixdump or od-hp, and with local_epsilon = "
            f"{other} or less. Shares then become less exact; {plan}.",
        )
    if task.kind == "string":
        action = "Raise permanent or unset, or lower set: they determine what a report reveals"
    elif task.kind in ITEM_KINDS:
        current = rounded_up(task.local_epsilon)
        action = f"Lower local_epsilon, for example from {current} to {other}"
    else:
        action = "Lower local_epsilon"
    return Change(
        action,
        "Each device then adds more noise to its report, and this noise is all that protects a "
        "person from somebody who knows which report is theirs. The result becomes less exact; "
        f"{plan}. Tasks are immutable: publish a new one.",
    )


_ASK_ONCE: Final = Change(
    "Omit population if these people are never asked again",
    "Permanent responses to a population are the same in every task, so no amplification by the "
    "shuffler is claimed; for a single task it can be.",
)
_INDEPENDENT_OPERATORS: Final = Change(
    "Let different organisations operate the shuffler, the issuer and the analyzer",
    "Let them share no machine, key or administrator, and forbid pooling by contract. This does "
    "not change the figure, but makes it unlikely that the two ever pool what they saw. As long as "
    "one organisation operates both, no better figure holds.",
)
_TOKENS: Final = Change(
    "Require one-time tokens: publish the next task with --token-key",
    "Without them anybody, the analyzer too, can fill a batch with submissions of their own and "
    "subtract them. With tokens, that takes the issuer's help or people who are entitled to them.",
)
_MORE_REPORTS: Final = Change(
    "More users, a larger n_min or a few more dummies do not help here",
    "They hide a report among others from the analyzer alone. The shuffler and analyzer together "
    "know which reports are yours.",
    helps=False,
)
_RELY_ON_A_SHUFFLER: Final = Change(
    "Choose a protocol that relies on a shuffler, such as od-hp",
    "Then the analyzer cannot link reports to people, and learns much less about one person at the "
    "same error. What the shuffler and analyzer learn together does not change.",
)
_MORE_USERS: Final = Change(
    "More users do not help here",
    "Only its own noise protects each report. More users make shares more exact.",
    helps=False,
)
_MORE_DUMMIES: Final = Change(
    "Raise dummies_per_user",
    "Dummies hide a report among others without more users; they cost traffic.",
)
