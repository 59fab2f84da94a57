"""The weakest point of a task: who can learn most about one person, and what would change it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from common.messages.guarantee import Coalition, Guarantee
from deploy.audit.finding import Finding
from deploy.audit.report import AuditReport


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakestPoint:
    """The coalition against which least is promised, and what was measured of it."""

    coalition: Coalition
    guarantee: Guarantee
    """The best of what is promised against it: several promises hold at once."""
    equals: tuple[Coalition, ...]
    """Others against which no more is promised."""
    attacks: tuple[Finding, ...]
    """What was tried by this coalition; see AuditReport.attacks_by."""

    @property
    def measured(self) -> Finding | None:
        """Give the row that says how much this coalition gained, if one does."""
        rows = (
            row
            for row in self.attacks
            if row.empirical_epsilon_lower is not None or row.exact_epsilon is not None
        )
        return next(rows, None)


def weakest_point(report: AuditReport) -> WeakestPoint:
    """Find the weakest point of an audited task."""
    best = best_promises(report.guarantees)
    weakest = max(best, key=lambda coalition: best[coalition].epsilon)  # of equals the first
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
    """Give the promise with the least ε against each coalition, in their order."""
    best: dict[Coalition, Guarantee] = {}
    for guarantee in guarantees:
        before = best.get(guarantee.coalition)
        if guarantee.epsilon < (math.inf if before is None else before.epsilon) or before is None:
            best[guarantee.coalition] = guarantee
    return best
