"""The game among few honest users, all of whom but the victim hold one third value."""

import numpy as np

from common.mechanisms.base import Vector
from deploy.audit.audited import Audited
from deploy.audit.game import Played, play
from deploy.audit.privacy.messages import (
    count_scores,
    own_dummies,
    own_reports,
    scores,
    slow_to_draw,
)

STATISTIC = "likelihood ratio of all messages that do not support the third value"
_LEAST_TRIALS = 1000
_SLOW_MESSAGES = 50_000


def play_crowd(
    audited: Audited, honest: int, adding: int, rng: np.random.Generator, rounds: int = 1
) -> Played:
    """
    Play against an analyzer that knows everybody's messages but those of some honest users.

    Args:
        audited: The task, and how much is drawn.
        honest: Users whose messages it does not know, the victim among them.
        adding: How many of these add their dummies.
        rng: Of all draws.
        rounds: Tasks that the same users answer; what it learned is added up.
    """
    task = audited.task
    messages = rounds * (honest + adding * task.dummies.expected_per_user)
    trials = max(_LEAST_TRIALS, int(audited.effort.crowds / messages))
    if slow_to_draw(task.dummies):
        trials = min(trials, max(_LEAST_TRIALS, _SLOW_MESSAGES // (rounds * honest)))
    worlds = [
        np.sum([_scores(audited, item, honest, adding, trials, rng) for _ in range(rounds)], axis=0)
        for item in (0, task.domain_size - 1)
    ]
    return play(worlds[0], worlds[1], task.delta)


def _scores(  # noqa: PLR0917  # what is drawn
    audited: Audited, item: int, honest: int, adding: int, trials: int, rng: np.random.Generator
) -> Vector:
    task, mechanism = audited.task, audited.mechanism
    first, second = 0, task.domain_size - 1
    third = task.domain_size // 2 if task.domain_size > 2 else second  # noqa: PLR2004
    sent = own_reports(mechanism, item, trials, rng)
    sent = sent.joined(own_reports(mechanism, third, trials, rng, each=honest - 1))
    if task.dummies.maximum:
        sent = sent.joined(own_dummies(task, mechanism, trials, rng, each=adding))
    if third != second and honest > 1:
        sent = sent.without(mechanism.supports(sent.reports, third))
    return (
        scores(mechanism, sent, (first, second))
        if task.shuffler.idle
        else count_scores(task, mechanism, sent, (first, second), rng)
    )
