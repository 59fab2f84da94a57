"""
The analyzer's view of a whole batch: alone, with colluding users, where users add no dummies, and
over several rounds.

Colluding users hand over their reports and dummies, so that the honest users' part of the batch is
left. Where many users are honest no game has power; there the claim rests on the computed attack,
and on tests that the code draws as computed.
"""

import dataclasses
import math
from functools import partial
from typing import Any, Final

import numpy as np

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.guarantees import (
    PrivacyParameters,
    analyzer_guarantee,
    local_guarantee,
    skippers_guarantee,
)
from common.accounting.releases import AmplifiedRelease
from common.accounting.rounds_attack import epsilon_of_rounds
from common.messages.guarantee import rounded_up
from deploy.audit.coalitions.messages import (
    FEW_USERS,
    STATISTIC,
    own_reports,
    proven_epsilon,
    run_batch_game,
    scores,
)
from deploy.audit.finding import Curve, CurvePoint, Finding, Findings
from deploy.audit.game import game_row, run_game
from deploy.audit.scenario import AuditSubject

_SHARES: Final = (0.0, 0.9)
"""Colluding shares of the users for which claim and attack are computed."""
_MEASURED: Final = (FEW_USERS, 10, 1)
"""Numbers of honest users with whom the game is run."""
_FEW: Final = 10
"""Users among whom missing dummies and rounds are measured."""
_MORE_USERS: Final = (
    "Ask more people, or raise n_min: the more answer, the less each one shows. Ask for tokens, so "
    "that nobody can answer under many names."
)
_POOLED_ROUNDS: Final = 2
_ROUNDS: Final = (2, 10, 30)
_ASK_SELDOM: Final = (
    "Name the population in the task and give it a budget: the analyzer then refuses the round "
    "that would spend more. Ask as seldom as you can."
)


def run_colluders(
    subject: AuditSubject, rng: np.random.Generator, *, trusting: bool = False
) -> Findings:
    """
    Run the attack for no colluders up to all users but the victim.

    `trusting`: the claims count colluding users as honest; no findings where that makes no
    difference.
    """
    n_users, terms = subject.n_users, subject.terms
    if terms.reduction is None:
        return Findings() if trusting else Findings((_without_shuffler(subject),))
    if trusting:
        alone, all_honest = (analyzer_guarantee(terms, n_users, left) for left in (1, n_users))
        if alone.epsilon <= all_honest.epsilon:
            return Findings()
    numbers = {max(1, n_users - int(share * n_users)) for share in _SHARES}
    points, rows = list[CurvePoint](), list[Finding]()
    for left in sorted(numbers | {few for few in _MEASURED if few <= n_users}, reverse=True):
        claimed = analyzer_guarantee(terms, n_users, n_users if trusting else left)
        attack = proven_epsilon(terms, terms.crowd_of(n_users, left, left, 0))
        result = run_batch_game(subject, left, left, rng) if left <= FEW_USERS else None
        statistic: dict[str, Any] = {} if result is None else {"statistic": STATISTIC}
        rows.append(
            game_row(
                result=result,
                claimed=claimed,
                exact=attack,
                scenario="colluders",
                title=f"{left:,} of {n_users:,} users honest",
                sentence=f"If the analyzer and {n_users - left:,} of {n_users:,} users pool what "
                "they know, anything they see is at most e^ε times as likely under one value of "
                f"yours as under another, ε = {rounded_up(claimed.epsilon)}, but for a chance of "
                "δ.",
                advice=_MORE_USERS,
                **statistic,
            )
        )
        points.append(
            CurvePoint(
                colluding=(n_users - left) / n_users,
                honest=left,
                claim=claimed.epsilon,
                attack=attack,
                measured=result.epsilon_lower if result else None,
            )
        )
    curve = Curve(
        title=f"The analyzer and colluding users, of {n_users:,}",
        delta=subject.task.delta,
        points=tuple(points),
    )
    return Findings(tuple(rows), (curve,))


def _without_shuffler(subject: AuditSubject) -> Finding:
    """Return the finding where the protocol relies on no shuffler: the local ε is the claim."""
    return game_row(
        claimed=local_guarantee("analyzer", subject.terms),
        exact=None,
        scenario="colluders",
        title="No shuffler is counted on",
        statistic="measured against shuffler and analyzer together",
        sentence="This protocol promises the noise of your own report, with or without a shuffler.",
    )


def run_skippers(
    subject: AuditSubject, rng: np.random.Generator, *, believed: bool = False
) -> Findings:
    """
    Compute, and measure among few users, the effect of users who add no dummies.

    `believed`: the claims count on the dummies of all users, and the attack knows the messages of
    all but the victim; no findings where no attack is computed.
    """
    if not subject.task.dummies.maximum or subject.terms.reduction is None:
        return Findings()
    n_users, terms = subject.n_users, subject.terms
    claims = [
        skippers_guarantee(terms, users, adding=users if believed else 1)
        for users in (n_users, _FEW)
    ]
    attacks = [
        proven_epsilon(terms, terms.crowd_of(users, 1 if believed else users, 1, 0))
        for users in (n_users, _FEW)
    ]
    if believed and attacks[1] is None:
        return Findings()
    computed = game_row(
        claimed=claims[0],
        exact=attacks[0],
        scenario="skippers",
        title=f"{n_users - 1:,} of {n_users:,} users add no dummies",
        sentence="Users who skip their dummies leave less to hide among: ε = "
        f"{rounded_up(claims[0].epsilon)} if all but you do.",
        advice="Set assumed_honest_fraction below 1: the task then claims only what those who "
        "follow it bring.",
    )
    measured = game_row(
        result=run_batch_game(subject, 1 if believed else _FEW, 1, rng),
        claimed=claims[1],
        exact=attacks[1],
        scenario="skippers",
        aside=True,
        title=f"Among {_FEW} users, of whom {_FEW - 1} add no dummies",
        statistic=STATISTIC,
        sentence=f"Among {_FEW} users of whom one adds dummies an attack gets no more than is "
        "computed for so few.",
    )
    return Findings((computed, measured))


def run_rounds(
    subject: AuditSubject, rng: np.random.Generator, *, forgetful: bool = False
) -> Findings:
    """
    Ask the same people again: run two rounds against shuffler and analyzer together, and compute
    more for the analyzer.

    `forgetful`: the claims count one round only; no findings without local noise, where one round
    gives everything away.
    """
    if forgetful and math.isinf(subject.task.local_epsilon):
        return Findings()
    rows, n_users = [_linked_rounds(subject, rng, forgetful=forgetful)], subject.n_users
    if subject.terms.reduction is None or not subject.task.shuffler.idle:
        return Findings(tuple(rows))
    few = min(_FEW, n_users)
    for rounds, honest in (*((number, n_users) for number in _ROUNDS), (_POOLED_ROUNDS, few)):
        terms = dataclasses.replace(subject.terms, rounds=rounds)
        stated = dataclasses.replace(terms, rounds=1) if forgetful else terms
        claimed = analyzer_guarantee(stated, n_users, honest=honest)
        measured: dict[str, Any] = {}
        if honest < n_users:
            measured["result"] = run_batch_game(subject, honest, honest, rng, rounds=rounds)
            measured["statistic"] = f"{STATISTIC}, over {rounds} rounds"
        rows.append(
            _rounds_row(
                claimed=claimed,
                exact=_rounds_attack(terms, terms.crowd_of(n_users, honest, honest, 0)),
                title=f"{rounds} rounds, {honest:,} of {n_users:,} users honest",
                sentence=f"After {rounds} such rounds the analyzer has learned what "
                f"ε = {rounded_up(claimed.epsilon)} allows, at most.",
                **measured,
            )
        )
    return Findings(tuple(rows))


_rounds_row = partial(game_row, scenario="rounds", aside=True, advice=_ASK_SELDOM)


def _linked_rounds(subject: AuditSubject, rng: np.random.Generator, *, forgetful: bool) -> Finding:
    """Add up the evidence of two reports of one user, each recognised."""
    mechanism, items = subject.mechanism, (0, subject.task.domain_size - 1)
    worlds = [
        np.sum(
            [
                scores(mechanism, own_reports(mechanism, item, subject.sizes.games, rng), items)
                for _ in range(_POOLED_ROUNDS)
            ],
            axis=0,
        )
        for item in items
    ]
    terms = dataclasses.replace(subject.terms, rounds=1 if forgetful else _POOLED_ROUNDS)
    return _rounds_row(
        result=run_game(*worlds),
        claimed=local_guarantee("shuffler+analyzer", terms),
        exact=_POOLED_ROUNDS * mechanism.local_epsilon,
        title=f"{_POOLED_ROUNDS} rounds, your reports recognised",
        statistic=f"sum of the log likelihood ratios of {_POOLED_ROUNDS} reports",
        sentence=f"A coalition that links your reports learns twice as much from {_POOLED_ROUNDS} "
        "rounds as from one.",
    )


def _rounds_attack(terms: PrivacyParameters, population: AnonymitySet) -> float | None:
    """Compute the attack on all rounds; None where the distribution of the noise is not known."""
    release = terms.release(population)
    if not isinstance(release, AmplifiedRelease) or release.crowd.random_dummies is not None:
        return None
    if release.reduction.third_value == "none":
        return None
    return epsilon_of_rounds(release.reduction, release.crowd, terms.rounds, terms.delta)
