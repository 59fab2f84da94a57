"""Shuffler and analyzer together: they link every opened report to its sender."""

import dataclasses
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from common.accounting.guarantees import guarantees_under, local_guarantee
from common.mechanisms.base import Vector
from common.messages.guarantee import Coalition, Guarantee
from common.task.shuffler_spec import PERMUTES
from deploy.audit.coalitions.crowd import proven_epsilon
from deploy.audit.coalitions.messages import own_dummies, own_reports, scores, slow_to_draw
from deploy.audit.finding import Finding, Findings
from deploy.audit.game import run_game
from deploy.audit.game_rows import game_row, understated
from deploy.audit.laws.kind_values import worst_values
from deploy.audit.laws.support_law import support_law
from deploy.audit.laws.value_reports import log_likelihood
from deploy.audit.report_draws import draw_reports, reports_each
from deploy.audit.subject import AuditSubject

TESTED_DELTA: Final = 0.01
"""δ of the game with a user's own dummies: large enough to be measured."""
_MOST_MESSAGES: Final = 3
"""Messages for each trial of the sample size, at most."""
_SLOW_TRIALS: Final = 50_000
_MOST_TRIALS: Final = 4
"""Factor by which a game of one report may have more trials, where support is rare."""
_LOST: Final = 0.07
"""Share of the local ε that the bounds on two rare probabilities may cost."""
_SIGMAS: Final = 5.5
"""Standard deviations between an estimate and its bound."""
_COALITION: Final[Coalition] = "shuffler+analyzer"
_Stated = Callable[[Guarantee], Guarantee]
_LOWER: Final = (
    "Lower local_epsilon: it is all that holds against these two together. Have the two run by "
    "people who do not work together. Dummies do not help here: they buy accuracy by letting "
    "local_epsilon grow."
)


def run_pooled(
    subject: AuditSubject,
    rng: np.random.Generator,
    understate: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Run the game on one recognised report, and on all messages of one user.

    Args:
        subject: The task, and the sample sizes.
        rng: Source of all draws.
        understate: Whether the claims are understated; see `game_rows.understated`.
    """
    stated: _Stated = understated if understate else lambda claimed: claimed
    if subject.task.kind != "categorical":
        return Findings(findings=(_other_kind(subject, rng, stated),))
    rows = [_one_report(subject, rng, stated)]
    if subject.task.dummies.maximum:
        rows.append(_with_dummies(subject, rng, stated))
    return Findings(findings=tuple(rows))


def _one_report(subject: AuditSubject, rng: np.random.Generator, stated: _Stated) -> Finding:
    task = subject.task
    drawn = _draw(subject, rng, dummies=False)
    needed, most = _trials(subject)
    noisy = math.isfinite(task.local_epsilon)
    return game_row(
        run_game(*drawn),
        claimed=stated(local_guarantee(_COALITION, subject.terms)),
        exact=subject.mechanism.local_epsilon,
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


def _other_kind(subject: AuditSubject, rng: np.random.Generator, stated: _Stated) -> Finding:
    """Run the game on texts, numbers or pairs, for the values that are most easily told apart."""
    task, results = subject.task, []
    for first, second in worst_values(task):
        worlds = []
        for value in (first, second):
            reports = draw_reports(task, value, reports_each(subject), rng)
            odds = log_likelihood(task, first, reports) - log_likelihood(task, second, reports)
            worlds.append(np.nan_to_num(odds))
        results.append(run_game(worlds[0], worlds[1]))
    return game_row(
        max(results, key=lambda result: result.epsilon_lower),
        claimed=stated(local_guarantee(_COALITION, subject.terms)),
        exact=None,
        tests=len(results),
        scenario=_COALITION,
        title="Your own report, recognised",
        heading="anonymity",
        statistic="likelihood ratio of the one report",
        sentence="If shuffler and analyzer pool what they saw, they know which report is yours; "
        "only the noise that your own device put into it still protects you.",
        advice="Add more noise to reports: nothing else holds against these two together.",
    )


def _with_dummies(subject: AuditSubject, rng: np.random.Generator, stated: _Stated) -> Finding:
    """Measure the effect of the user's own dummies, at a δ where it shows."""
    task = subject.task
    claimed = min(
        (
            guarantee
            for guarantee in guarantees_under(
                dataclasses.replace(subject.terms, delta=TESTED_DELTA), subject.n_users
            )
            if guarantee.coalition == _COALITION
        ),
        key=lambda guarantee: guarantee.epsilon,
    )
    certain = task.dummies.per_user
    terms = dataclasses.replace(
        subject.terms, reduction=subject.reduction, shuffler=PERMUTES, delta=TESTED_DELTA
    )
    alone = terms.crowd_of(subject.n_users, 1, 1, 0)
    return game_row(
        run_game(*_draw(subject, rng, dummies=True), delta=claimed.delta),
        claimed=stated(claimed),
        exact=proven_epsilon(terms, alone) if claimed.delta > 0 else None,
        scenario=_COALITION,
        title="Your report among your own dummies",
        heading="anonymity",
        statistic=f"likelihood ratio of all {1 + certain} messages or more of one user",
        sentence=(
            "Your own dummies make it a little less certain which of your messages is the true "
            "one; they never mend what a lucky draw gives away."
        ),
        advice=_LOWER,
    )


def _draw(
    subject: AuditSubject, rng: np.random.Generator, *, dummies: bool
) -> tuple[Vector, Vector]:
    """Draw the scores of both worlds: the victim holds the first item, or the last."""
    task, mechanism = subject.task, subject.mechanism
    first, second = 0, task.domain_size - 1
    trials = min(_trials(subject))
    if dummies:
        trials = subject.sizes.games
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


def _trials(subject: AuditSubject) -> tuple[int, int]:
    """
    Return the trials that show nine tenths of the local ε, and the most that are allowed.

    The bounds on the probabilities p and q of support cost about z/√(np) and z/√(nq) of ε.
    """
    law, epsilon = support_law(subject.task), subject.task.local_epsilon
    least, most = subject.sizes.games, _MOST_TRIALS * subject.sizes.games
    if math.isinf(epsilon):
        return least, most
    spread = 1 / math.sqrt(law.own) + 1 / math.sqrt(law.own * math.exp(-epsilon))
    return max(least, int((_SIGMAS * spread / (_LOST * epsilon)) ** 2)), most
