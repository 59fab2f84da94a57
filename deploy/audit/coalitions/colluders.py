"""
The analyzer, alone and with colluding users, who hand over their reports and dummies.

The honest users' part of the batch is left: see crowd.py. Where many users are honest no game has
power; there the claim rests on the computed attack, and on tests that the code draws as computed.
"""

import dataclasses
from typing import Any, Final

import numpy as np

from common.accounting.guarantees import analyzer_guarantee, local_guarantee
from common.messages.guarantee import Guarantee, rounded_up
from deploy.audit.coalitions.crowd import FEW, STATISTIC, proven_epsilon, run_crowd
from deploy.audit.finding import Curve, CurvePoint, Finding, Findings
from deploy.audit.game import GameResult
from deploy.audit.game_rows import computed_row, game_row
from deploy.audit.subject import AuditSubject

_SHARES: Final = (0.0, 0.9)
"""Colluding shares of the users for which claim and attack are computed."""
_CLAIMED_ALONE: Final = (0.25, 0.5)
"""Colluding shares for which the curve shows the claim alone: each attack takes seconds."""
_FEW: Final = (FEW, 10, 1)
"""Numbers of honest users with whom the game is run."""
_MORE_USERS: Final = (
    "Ask more people, or raise n_min: the more answer, the less each one shows. Ask for tokens, so "
    "that nobody can answer under many names."
)


def run_colluders(
    subject: AuditSubject,
    rng: np.random.Generator,
    trusting: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Run the attack for no colluders up to all users but the victim.

    Args:
        subject: The task, and for how many users.
        rng: Source of all draws.
        trusting: Whether the claims count colluding users as honest; no findings where that makes
            no difference.
    """
    n_users, task, terms = subject.n_users, subject.task, subject.terms
    if terms.reduction is None:
        return Findings(findings=() if trusting else (_not_relied_on(subject),))
    if trusting:
        alone, all_honest = (analyzer_guarantee(terms, n_users, left) for left in (1, n_users))
        if alone.epsilon <= all_honest.epsilon:
            return Findings(findings=())
    honest = {max(1, n_users - int(share * n_users)) for share in _SHARES}
    honest |= {few for few in _FEW if few <= n_users}
    between = {max(1, n_users - int(share * n_users)) for share in _CLAIMED_ALONE} - honest
    points, rows = [_point(subject, left) for left in between], list[Finding]()
    for left in sorted(honest, reverse=True):
        claimed = analyzer_guarantee(terms, n_users, n_users if trusting else left)
        attack = proven_epsilon(terms, terms.crowd_of(n_users, left, left, 0))
        result = run_crowd(subject, left, left, rng) if left <= FEW else None
        points.append(
            dataclasses.replace(
                _point(subject, left, claimed),
                attack=attack,
                measured=result.epsilon_lower if result else None,
            )
        )
        rows.append(_row(subject, left, claimed, attack, result))
    curve = Curve(
        title=f"The analyzer and colluding users, of {n_users:,}",
        delta=task.delta,
        points=tuple(sorted(points, key=lambda point: point.colluding)),
    )
    return Findings(findings=tuple(rows), curves=(curve,))


def _point(subject: AuditSubject, honest: int, claimed: Guarantee | None = None) -> CurvePoint:
    known = claimed or analyzer_guarantee(subject.terms, subject.n_users, honest)
    return CurvePoint(
        colluding=(subject.n_users - honest) / subject.n_users,
        honest=honest,
        claim=known.epsilon,
        attack=None,
    )


def _row(
    subject: AuditSubject,
    honest: int,
    claimed: Guarantee,
    attack: float | None,
    result: GameResult | None,
) -> Finding:
    colluders, most = subject.n_users - honest, rounded_up(claimed.epsilon)
    fields: dict[str, Any] = {
        "scenario": "colluders",
        "title": f"{honest:,} of {subject.n_users:,} users honest"
        if colluders
        else f"All {honest:,} users honest",
        "heading": "anonymity",
        "sentence": (
            f"If the analyzer and {colluders:,} of {subject.n_users:,} users pool what they know, "
            "anything they see is at most e^ε times as likely under one value of yours as under "
            f"another, ε = {most}, but for a chance of δ."
            if colluders
            else "The analyzer, which reads every report but not whose it is, learns of you what "
            f"ε = {most} allows, at most."
        ),
        "advice": _MORE_USERS,
    }
    if result is not None:
        return game_row(result, claimed=claimed, exact=attack, statistic=STATISTIC, **fields)
    return computed_row(claimed=claimed, exact=attack, **fields)


def _not_relied_on(subject: AuditSubject) -> Finding:
    """Return the finding where the protocol relies on no shuffler: the local ε is the claim."""
    return computed_row(
        claimed=local_guarantee("analyzer", subject.terms),
        exact=None,
        scenario="colluders",
        title="No shuffler is counted on",
        heading="anonymity",
        statistic="measured against shuffler and analyzer together",
        sentence="This protocol promises the noise of your own report, with or without a shuffler.",
    )
