"""The weakest point of a task, and what would change it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.messages.guarantee import Coalition, Guarantee, rounded_up
from common.protocols import Kind
from common.task.task import Task
from deploy.audit.finding import Finding
from deploy.audit.report import AuditReport

USUAL_LOCAL_EPSILON: Final = 4.0
"""Largest local ε that devices accept by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A possible change and its effect."""

    action: str
    """An instruction of a few words; or something that does not help."""
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


def lower_local_epsilon(task: Task) -> float:
    """Return the proposed local ε: half of the task's, or what devices accept at most."""
    return min(task.local_epsilon / 2, USUAL_LOCAL_EPSILON)


def stated_local_epsilon(task: Task) -> str:
    """Return the local ε in words."""
    return "none" if math.isinf(task.local_epsilon) else rounded_up(task.local_epsilon)


def _noise(task: Task) -> Change:
    other = rounded_up(lower_local_epsilon(task))
    if math.isinf(task.local_epsilon):
        return Change(
            action="Let every device add noise to its report",
            why=(
                f"Reports of the protocol {task.protocol} are not randomized: somebody who knows "
                "which reports are yours may know your value. Publish the next task under a "
                "protocol with local noise, such as mixdump or od-hp, and with local_epsilon = "
                f"{other} or less. Shares then become less exact; shuffledp plan with --local-cap "
                f"{other} finds the parameters with the least error."
            ),
        )
    if task.kind != "categorical":
        return Change(action=_LESS[task.kind], why=_WHY_LESS)
    return Change(
        action=f"Lower local_epsilon, for example from {stated_local_epsilon(task)} to {other}",
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
