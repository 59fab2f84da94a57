"""Shuffler and analyzer together: every opened report is linked to who sent it."""

import dataclasses
import math
from typing import Final

import numpy as np

from common.accounting.guarantees import guarantees_under, local_guarantee
from common.mechanisms.base import Vector
from common.messages.guarantee import Coalition
from common.task.shuffler_spec import PERMUTES
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game import play
from deploy.audit.game_rows import game_row
from deploy.audit.laws.support_law import support_law
from deploy.audit.privacy.crowd_attack import proven_epsilon
from deploy.audit.privacy.messages import own_dummies, own_reports, scores, slow_to_draw

TESTED_DELTA: Final = 0.01
"""Where a person's own dummies are counted: a δ that so many trials can tell from nothing."""
_MOST_MESSAGES: Final = 3
"""A game at least takes as many messages for each trial that its effort names."""
_SLOW_TRIALS: Final = 50_000
_MOST_OF_EFFORT: Final = 4
"""As many more trials of a single report may be played where its values are seldom supported."""
_LOST: Final = 0.07
"""Share of the local ε that bounds on two rare probabilities may cost."""
_SIGMAS: Final = 5.5
"""Standard deviations that a bound lies below what was seen."""
_COALITION: Final[Coalition] = "shuffler+analyzer"
_LOWER: Final = (
    "Lower local_epsilon: it is all that holds against these two together. Have the two run by "
    "people who do not work together. Dummies do not help here: they buy accuracy by letting "
    "local_epsilon grow."
)


def play_pooled(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Play for one report, and for all that a person sends."""
    rows = [_one_report(audited, rng)]
    if audited.task.dummies.maximum:
        rows.append(_with_dummies(audited, rng))
    return Outcome(findings=tuple(rows))


def _one_report(audited: Audited, rng: np.random.Generator) -> Finding:
    task = audited.task
    drawn = _draw(audited, rng, dummies=False)
    needed, most = _trials(audited)
    noisy = math.isfinite(task.local_epsilon)
    return game_row(
        play(*drawn),
        claimed=local_guarantee(_COALITION, audited.terms),
        exact=audited.mechanism.local_epsilon,
        must_reach=not noisy or needed <= most,
        scenario=_COALITION,
        title="Your own report, recognised",
        heading="anonymity",
        statistic="likelihood ratio of the one report",
        sentence=(
            "If shuffler and analyzer pool what they saw, they know which report is yours; only "
            "the noise that your own device put into it still protects you."
            if noisy
            else "If shuffler and analyzer pool what they saw, they read your value: reports "
            "carry no noise of their own."
        ),
        advice=_LOWER
        if noisy
        else "Choose a protocol with local noise: here nothing holds against these two together.",
    )


def _with_dummies(audited: Audited, rng: np.random.Generator) -> Finding:
    """Give what the person's own dummies change, at a δ where that can be measured."""
    task = audited.task
    claimed = min(
        (
            guarantee
            for guarantee in guarantees_under(
                dataclasses.replace(audited.terms, delta=TESTED_DELTA), audited.n_users
            )
            if guarantee.coalition == _COALITION
        ),
        key=lambda guarantee: guarantee.epsilon,
    )
    certain = task.dummies.per_user
    terms = dataclasses.replace(
        audited.terms, reduction=audited.reduction, shuffler=PERMUTES, delta=TESTED_DELTA
    )
    alone = terms.crowd_of(audited.n_users, 1, 1, 0)
    return game_row(
        play(*_draw(audited, rng, dummies=True), delta=claimed.delta),
        claimed=claimed,
        exact=proven_epsilon(terms, alone) if claimed.delta > 0 else None,
        scenario=_COALITION,
        title="Your report among your own dummies",
        heading="anonymity",
        statistic=f"likelihood ratio of all {1 + certain} messages or more of one person",
        sentence=(
            "Your own dummies make it a little less certain which of your messages is the true "
            "one; they never mend what a lucky draw gives away."
        ),
        advice=_LOWER,
    )


def _draw(audited: Audited, rng: np.random.Generator, *, dummies: bool) -> tuple[Vector, Vector]:
    """Draw scores in the two worlds: the victim holds the first item, or the last."""
    task, mechanism = audited.task, audited.mechanism
    first, second = 0, task.domain_size - 1
    trials = min(_trials(audited))
    if dummies:
        trials = audited.effort.games
        messages = 1 + task.dummies.expected_per_user
        trials = int(trials * min(1.0, _MOST_MESSAGES / messages))
        if slow_to_draw(task.dummies):
            trials = min(trials, _SLOW_TRIALS)
    worlds = []
    for item in (first, second):
        sent = own_reports(mechanism, item, trials, rng)
        if dummies:
            sent = sent.joined(own_dummies(task, mechanism, trials, rng))
        worlds.append(scores(mechanism, sent, (first, second)))
    return worlds[0], worlds[1]


def _trials(audited: Audited) -> tuple[int, int]:
    """
    Give the trials that show nine tenths of the local ε, and how many effort allows.

    The bounds on the chances p and q of supporting the value cost about z/√(np) and z/√(nq) of ε.
    """
    law, epsilon = support_law(audited.task), audited.task.local_epsilon
    least, most = audited.effort.games, _MOST_OF_EFFORT * audited.effort.games
    if math.isinf(epsilon):
        return least, most
    spread = 1 / math.sqrt(law.own) + 1 / math.sqrt(law.own * math.exp(-epsilon))
    return max(least, int((_SIGMAS * spread / (_LOST * epsilon)) ** 2)), most
