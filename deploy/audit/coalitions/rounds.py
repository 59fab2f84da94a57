"""The same people asked again and again, each time with a task of its own."""

import dataclasses
import math
from typing import Final

import numpy as np

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.guarantees import PrivacyParameters, analyzer_guarantee, local_guarantee
from common.accounting.releases import AmplifiedRelease
from common.accounting.rounds_attack import epsilon_of_rounds
from common.messages.guarantee import rounded_up
from deploy.audit.coalitions.crowd import STATISTIC, run_crowd
from deploy.audit.coalitions.messages import own_reports, scores
from deploy.audit.finding import Finding, Findings
from deploy.audit.game import run_game
from deploy.audit.game_rows import computed_row, game_row
from deploy.audit.subject import AuditSubject

_POOLED_ROUNDS: Final = 2
_ROUNDS: Final = (2, 10, 30)
_FEW: Final = 10
"""Honest users among whom rounds are measured."""
_ADVICE: Final = (
    "Name the population in the task and give it a budget: the analyzer then refuses the round "
    "that would spend more. Ask as seldom as you can."
)


def run_rounds(
    subject: AuditSubject,
    rng: np.random.Generator,
    forgetful: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Run two rounds against shuffler and analyzer together, and compute more for the analyzer.

    Args:
        subject: The task, and for how many users.
        rng: Source of all draws.
        forgetful: Whether the claims count one round only; no findings without local noise, where
            one round gives everything away.
    """
    if forgetful and math.isinf(subject.task.local_epsilon):
        return Findings(findings=())
    rows = [_pooled(subject, rng, forgetful)]
    if subject.terms.reduction is not None and subject.task.shuffler.idle:
        rows.extend(_against_analyzer(subject, rounds, forgetful) for rounds in _ROUNDS)
        rows.append(_among_few(subject, rng, forgetful))
    return Findings(findings=tuple(rows))


def _terms(subject: AuditSubject, rounds: int, forgetful: bool) -> PrivacyParameters:  # noqa: FBT001
    """Return the terms from which the claim for so many rounds follows."""
    return dataclasses.replace(subject.terms, rounds=1 if forgetful else rounds)


def _pooled(subject: AuditSubject, rng: np.random.Generator, forgetful: bool) -> Finding:  # noqa: FBT001
    """Add up the evidence of two reports of one user, each recognised."""
    task, mechanism = subject.task, subject.mechanism
    items = (0, task.domain_size - 1)
    worlds = [
        sum(
            scores(mechanism, own_reports(mechanism, item, subject.sizes.games, rng), items)
            for _ in range(_POOLED_ROUNDS)
        )
        for item in items
    ]
    return game_row(
        run_game(np.asarray(worlds[0]), np.asarray(worlds[1])),
        claimed=local_guarantee("shuffler+analyzer", _terms(subject, _POOLED_ROUNDS, forgetful)),
        exact=_POOLED_ROUNDS * mechanism.local_epsilon,
        scenario="rounds",
        aside=True,
        title=f"{_POOLED_ROUNDS} rounds, your reports recognised",
        heading="anonymity",
        statistic=f"sum of the log likelihood ratios of {_POOLED_ROUNDS} reports",
        sentence=f"A coalition that links your reports learns twice as much from {_POOLED_ROUNDS} "
        "rounds as from one.",
        advice=_ADVICE,
    )


def _against_analyzer(subject: AuditSubject, rounds: int, forgetful: bool) -> Finding:  # noqa: FBT001
    terms, n_users = _terms(subject, rounds, forgetful=False), subject.n_users
    claimed = analyzer_guarantee(_terms(subject, rounds, forgetful), n_users, honest=n_users)
    attack = _attack(terms, terms.crowd_of(n_users, n_users, n_users, 0))
    return computed_row(
        claimed=claimed,
        exact=attack,
        scenario="rounds",
        aside=True,
        title=f"{rounds} rounds of the same {n_users:,} users",
        heading="anonymity",
        sentence=f"After {rounds} such rounds the analyzer alone has learned what "
        f"ε = {rounded_up(claimed.epsilon)} allows, at most.",
        advice=_ADVICE,
    )


def _attack(terms: PrivacyParameters, crowd: AnonymitySet) -> float | None:
    """Compute the attack on all rounds; None where the distribution of the noise is not known."""
    release = terms.release(crowd)
    if not isinstance(release, AmplifiedRelease) or release.crowd.random_dummies is not None:
        return None
    if release.reduction.third_value == "none":
        return None
    return epsilon_of_rounds(release.reduction, release.crowd, terms.rounds, terms.delta)


def _among_few(subject: AuditSubject, rng: np.random.Generator, forgetful: bool) -> Finding:  # noqa: FBT001
    """Measure two rounds among few honest users."""
    claimed, terms = (_terms(subject, _POOLED_ROUNDS, each) for each in (forgetful, False))
    honest = min(_FEW, subject.n_users)
    return game_row(
        run_crowd(subject, honest, honest, rng, rounds=_POOLED_ROUNDS),
        claimed=analyzer_guarantee(claimed, subject.n_users, honest=honest),
        exact=_attack(terms, terms.crowd_of(subject.n_users, honest, honest, 0)),
        scenario="rounds",
        aside=True,
        title=f"{_POOLED_ROUNDS} rounds, {honest} of {subject.n_users:,} users honest",
        heading="anonymity",
        statistic=f"{STATISTIC}, over {_POOLED_ROUNDS} rounds",
        sentence=f"With {honest} honest users left an attack on {_POOLED_ROUNDS} rounds gets no "
        "more than is computed for so few.",
        advice=_ADVICE,
    )
