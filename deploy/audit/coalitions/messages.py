"""
Likelihood scores of users' messages for two items, and the analyzer's attack on a whole batch.

The deployed code draws reports, dummies and numbers of dummies. A report of item v is uniform with
probability γ and otherwise uniform among those that support v, so it is
w(v) = γ + (1-γ)·l·[supports v] times as likely as a dummy. In a set of messages with one own
report, the likelihood of v is proportional to the mean of w(v) over the set [BBGN19], so the ratio
of two items' sums is the most powerful statistic.
"""

import math
from typing import Final

import numpy as np

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.guarantees import PrivacyParameters
from common.accounting.reference.attack import epsilon_lower
from common.accounting.releases import AmplifiedRelease
from common.mechanisms.base import Mechanism, Reports, Vector
from common.task.task import Task
from deploy.audit.distributions.trials import Sent, own_dummies, own_reports
from deploy.audit.game import GameResult, run_game
from deploy.audit.scenario import AuditSubject
from shuffler.shuffle import draw_item_dummies, draw_kept

FEW_USERS: Final = 100
"""Maximum users for computing the attack on random numbers of dummies; more take minutes."""
STATISTIC: Final = "likelihood ratio of all messages that do not support the third value"
_CERTAIN: Final = 1e100
"""Score of messages that are impossible under the other value; finite, so differences exist."""
_MIN_TRIALS: Final = 1000
_SLOW_MESSAGES: Final = 50_000
"""Maximum messages, or trials with one user, where dummies are drawn user by user."""


def ends(mechanism: Mechanism) -> tuple[int, int]:
    """Return the two items that attacks distinguish: the first and the last."""
    return 0, mechanism.domain_size - 1


def user_messages(subject: AuditSubject, item: int, trials: int, rng: np.random.Generator) -> Sent:
    """Draw all messages of one user who holds an item, in each trial."""
    sent = own_reports(subject.mechanism, item, trials, rng)
    if subject.task.dummies.maximum:
        sent = sent.joined(own_dummies(subject.task, subject.mechanism, trials, rng))
    return sent


def user_worlds(subject: AuditSubject, trials: int, rng: np.random.Generator) -> list[Vector]:
    """
    Draw the scores of all messages of a user who holds the first item, then the last.

    Each has shape (trials,), with fewer trials where dummies are drawn user by user.
    """
    trials = trials if subject.task.dummies.uniform else min(trials, _SLOW_MESSAGES)
    mechanism = subject.mechanism
    return [
        scores(mechanism, user_messages(subject, item, trials, rng)) for item in ends(mechanism)
    ]


def report_worlds(
    mechanism: Mechanism, trials: int, rng: np.random.Generator, rounds: int = 1
) -> list[Vector]:
    """
    Draw the scores of the own reports of a user who holds the first item, then the last.

    Each has shape (trials,) and is summed over all rounds; dummies are left out.
    """
    return [
        np.sum(
            [scores(mechanism, own_reports(mechanism, item, trials, rng)) for _ in range(rounds)],
            axis=0,
        )
        for item in ends(mechanism)
    ]


def weights(mechanism: Mechanism, reports: Reports, item: int) -> Vector:
    """
    Return w(item) of each report up to a common factor; same shape as reports.

    Without a reduction there are no dummies, and the weights are those of one report.
    """
    supported, reduction = mechanism.supports(reports, item), mechanism.reduction
    if reduction is None:
        return np.asarray(1 + math.expm1(mechanism.local_epsilon) * supported, dtype=np.float64)
    return np.asarray(
        reduction.blanket + reduction.signal * reduction.answers * supported, dtype=np.float64
    )


def scores(mechanism: Mechanism, sent: Sent) -> Vector:
    """Return the log odds of the first item against the last; shape (trials,)."""
    sums = [
        np.bincount(
            sent.trial, weights=weights(mechanism, sent.reports, item), minlength=sent.trials
        )
        for item in ends(mechanism)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(sums[0]) - np.log(sums[1])
    score: Vector = np.nan_to_num(odds, nan=0.0, posinf=_CERTAIN, neginf=-_CERTAIN)
    return score


def _count_scores(task: Task, mechanism: Mechanism, sent: Sent, rng: np.random.Generator) -> Vector:
    """
    Return the difference of the items' counts in each forwarded batch; shape (trials,).

    Where the shuffler adds dummies that name items, these two counts are all the evidence.
    """
    kept = sent.without(~draw_kept(task.shuffler, len(sent.reports), rng))
    first, last = (
        np.bincount(kept.trial[mechanism.supports(kept.reports, item)], minlength=sent.trials)
        + draw_item_dummies(task.shuffler, sent.trials, rng)
        for item in ends(mechanism)
    )
    return np.asarray(first - last, dtype=np.float64)


def proven_epsilon(parameters: PrivacyParameters, population: AnonymitySet) -> float | None:
    """
    Compute a lower bound of ε from the accountant's attack on the analyzer's view of a batch.

    None where the attack does not support the noise, takes minutes, or proves nothing.
    """
    release = parameters.release(population)
    if not isinstance(release, AmplifiedRelease):
        return None
    if release.anonymity_set.random_dummies is not None and population.users > FEW_USERS:
        return None
    return epsilon_lower(release.reduction, release.anonymity_set, parameters.delta) or None


def run_batch_game(
    subject: AuditSubject, honest: int, adding: int, rng: np.random.Generator, rounds: int = 1
) -> GameResult:
    """
    Run the attack of an analyzer that knows all messages except those of `honest` users.

    All honest users but the victim hold the same third value. The attack drops reports that support
    it and counts how often the rest support each of the victim's two values. Of the honest users,
    the victim included, `adding` add dummies; the scores of all rounds are added up. Computed, the
    attack proves nearly the whole claim; measured, it has power only if few users are honest.
    """
    task, mechanism = subject.task, subject.mechanism
    messages = rounds * (honest + adding * task.dummies.expected_per_user)
    trials = max(_MIN_TRIALS, int(subject.sizes.batches / messages))
    if not task.dummies.uniform:
        trials = min(trials, max(_MIN_TRIALS, _SLOW_MESSAGES // (rounds * honest)))
    last = task.domain_size - 1
    third = task.domain_size // 2 if last > 1 else last

    def one_round(item: int) -> Vector:
        sent = own_reports(mechanism, item, trials, rng)
        sent = sent.joined(own_reports(mechanism, third, trials, rng, each=honest - 1))
        if task.dummies.maximum:
            sent = sent.joined(own_dummies(task, mechanism, trials, rng, each=adding))
        if third != last and honest > 1:
            sent = sent.without(mechanism.supports(sent.reports, third))
        if task.shuffler.only_permutes:
            return scores(mechanism, sent)
        return _count_scores(task, mechanism, sent, rng)

    first, second = (
        np.sum([one_round(item) for _ in range(rounds)], axis=0) for item in ends(mechanism)
    )
    return run_game(first, second, delta=task.delta)
