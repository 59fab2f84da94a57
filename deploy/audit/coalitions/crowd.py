"""
The analyzer's attack on a crowd: all honest users but the victim hold one third value.

Reports that support the third value are dropped, and the attack asks how often the others support
each of the victim's two values. Computed, it proves nearly all that can be claimed; measured, it
has power where few users are honest.
"""

from typing import Final

import numpy as np

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.guarantees import PrivacyParameters
from common.accounting.reference.attack import epsilon_lower
from common.accounting.releases import AmplifiedRelease
from common.mechanisms.base import Vector
from deploy.audit.coalitions.messages import (
    count_scores,
    own_dummies,
    own_reports,
    scores,
    slow_to_draw,
)
from deploy.audit.game import GameResult, run_game
from deploy.audit.subject import AuditSubject

FEW: Final = 100
"""Users up to which the attack is computed for random numbers of dummies; with more it takes
minutes."""
STATISTIC: Final = "likelihood ratio of all messages that do not support the third value"
_LEAST_TRIALS: Final = 1000
_SLOW_MESSAGES: Final = 50_000


def proven_epsilon(terms: PrivacyParameters, crowd: AnonymitySet) -> float | None:
    """
    Compute the accountant's own attack on the analyzer's view of a crowd.

    Returns:
        A lower bound of ε at the terms' δ; None where the attack does not know the noise, takes
        minutes, or proves nothing.
    """
    release = terms.release(crowd)
    if not isinstance(release, AmplifiedRelease):
        return None
    if release.crowd.random_dummies is not None and crowd.users > FEW:
        return None
    return epsilon_lower(release.reduction, release.crowd, terms.delta) or None


def run_crowd(
    subject: AuditSubject, honest: int, adding: int, rng: np.random.Generator, rounds: int = 1
) -> GameResult:
    """
    Run the attack of an analyzer that knows the messages of all users but some honest ones.

    Args:
        subject: The task and the sample sizes.
        honest: Users whose messages it does not know, the victim among them.
        adding: How many of these add their dummies.
        rng: Source of all draws.
        rounds: Tasks that the same users answer; the evidence adds up.
    """
    task = subject.task
    messages = rounds * (honest + adding * task.dummies.expected_per_user)
    trials = max(_LEAST_TRIALS, int(subject.sizes.crowds / messages))
    if slow_to_draw(task.dummies):
        trials = min(trials, max(_LEAST_TRIALS, _SLOW_MESSAGES // (rounds * honest)))

    def world(item: int) -> Vector:
        of_rounds = [_scores(subject, item, (honest, adding, trials), rng) for _ in range(rounds)]
        return np.asarray(np.sum(of_rounds, axis=0))

    return run_game(world(0), world(task.domain_size - 1), task.delta)


def _scores(
    subject: AuditSubject, item: int, sizes: tuple[int, int, int], rng: np.random.Generator
) -> Vector:
    task, mechanism = subject.task, subject.mechanism
    honest, adding, trials = sizes
    first, second = 0, task.domain_size - 1
    third = task.domain_size // 2 if task.domain_size > 2 else second  # noqa: PLR2004
    sent = own_reports(mechanism, item, trials, rng)
    sent = sent.joined(own_reports(mechanism, third, trials, rng, each=honest - 1))
    if task.dummies.maximum:
        sent = sent.joined(own_dummies(task, mechanism, trials, rng, each=adding))
    if third != second and honest > 1:
        sent = sent.without(mechanism.supports(sent.reports, third))
    if task.shuffler.idle:
        return scores(mechanism, sent, (first, second))
    return count_scores(task, mechanism, sent, (first, second), rng)
