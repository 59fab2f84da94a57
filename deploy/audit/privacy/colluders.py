"""
The analyzer, alone and with users who hand over which reports and dummies are theirs.

What is left of the batch is that of the honest users. The attack is the accountant's own: all other
honest users are taken to hold one third value, what supports it is dropped, and the rest is asked
how often it supports each of the victim's two values. Computed it proves nearly what is claimed
(see `exact_epsilon`); measured it has power only where few are honest. Towards the other end the
claim rests on the exact law, and on tests that the code draws from it.
"""

import dataclasses
from typing import Any, Final

import numpy as np

from common.accounting.guarantees import analyzer_guarantee, local_guarantee
from common.messages.guarantee import Guarantee, rounded_up
from deploy.audit.audited import Audited
from deploy.audit.finding import Curve, CurvePoint, Finding, Outcome
from deploy.audit.game import Played
from deploy.audit.game_rows import computed_row, game_row
from deploy.audit.privacy.crowd_attack import FEW, proven_epsilon
from deploy.audit.privacy.crowd_game import STATISTIC, play_crowd

_SHARES: Final = (0.0, 0.9, 0.99)
"""Colluding shares of the users for which claim and attack are computed."""
_CLAIMED_ALONE: Final = (0.1, 0.25, 0.5, 0.75)
"""Shares for which the curve shows the claim alone: each attack takes seconds."""
_FEW: Final = (FEW, 10, 1)
"""Honest users with whom the game is played, beside other numbers as small."""
_MORE_USERS: Final = (
    "Ask more people, or raise n_min: the more answer, the less each one shows. Ask for tokens, so "
    "that nobody can answer under many names."
)


def play_colluders(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Play for no colluder up to all users but the victim."""
    if audited.terms.reduction is None:
        return Outcome(findings=(_not_relied_on(audited),))
    n_users, task = audited.n_users, audited.task
    honest = {max(1, n_users - int(share * n_users)) for share in _SHARES}
    honest |= {few for few in _FEW if few <= n_users}
    between = {max(1, n_users - int(share * n_users)) for share in _CLAIMED_ALONE} - honest
    points, rows = [_point(audited, left) for left in between], list[Finding]()
    for left in sorted(honest, reverse=True):
        claimed = analyzer_guarantee(audited.terms, n_users, left)
        attack = proven_epsilon(audited.terms, audited.terms.crowd_of(n_users, left, left, 0))
        played = play_crowd(audited, left, left, rng) if left <= FEW else None
        points.append(
            dataclasses.replace(
                _point(audited, left, claimed),
                attack=attack,
                measured=played.epsilon_lower if played else None,
            )
        )
        rows.append(_row(audited, left, claimed, attack, played))
    curve = Curve(
        title=f"The analyzer and colluding users, of {n_users:,}",
        delta=task.delta,
        points=tuple(sorted(points, key=lambda point: point.colluding)),
    )
    return Outcome(findings=tuple(rows), curves=(curve,))


def _point(audited: Audited, honest: int, claimed: Guarantee | None = None) -> CurvePoint:
    known = claimed or analyzer_guarantee(audited.terms, audited.n_users, honest)
    return CurvePoint(
        colluding=(audited.n_users - honest) / audited.n_users,
        honest=honest,
        claim=known.epsilon,
        attack=None,
    )


def _row(
    audited: Audited,
    honest: int,
    claimed: Guarantee,
    attack: float | None,
    played: Played | None,
) -> Finding:
    colluders, most = audited.n_users - honest, rounded_up(claimed.epsilon)
    fields: dict[str, Any] = {
        "scenario": "colluders",
        "title": f"{honest:,} of {audited.n_users:,} users honest"
        if colluders
        else f"All {honest:,} users honest",
        "heading": "anonymity",
        "sentence": (
            f"If the analyzer and {colluders:,} of {audited.n_users:,} users pool what they know, "
            f"anything they see is at most e^ε times as likely under one value of yours as under "
            f"another, ε = {most}, but for a chance of δ."
            if colluders
            else "The analyzer, which reads every report but not whose it is, learns of you what "
            f"ε = {most} allows, at most."
        ),
        "advice": _MORE_USERS,
    }
    if played is not None:
        return game_row(played, claimed=claimed, exact=attack, statistic=STATISTIC, **fields)
    return computed_row(claimed=claimed, exact=attack, **fields)


def _not_relied_on(audited: Audited) -> Finding:
    """Say that no shuffler is counted on: the analyzer is told no more than the local ε allows."""
    return computed_row(
        claimed=local_guarantee("analyzer", audited.terms),
        exact=None,
        scenario="colluders",
        title="No shuffler is counted on",
        heading="anonymity",
        statistic="played against shuffler and analyzer together",
        sentence="This protocol promises the noise of your own report, with or without a shuffler.",
    )
