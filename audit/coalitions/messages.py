"""
Draw users' messages, score them for two items, and attack a whole batch as the analyzer.

The deployed code draws reports and dummies. A report of item v is uniform with probability γ and
otherwise uniform among those that support v, a share 1/l of all. It is thus
w(v) = γ + (1-γ)·l·[supports v] times as likely as a dummy. One user's messages contain one true
report, so the likelihood of v is proportional to the mean of w(v) over them [BBGN19], and the ratio
of two items' sums is the most powerful statistic.
"""

import math
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from audit.families.family import SupportDistribution
from audit.game import GameResult, run_game
from audit.scenario import AuditSubject
from common.accounting.privacy_parameters import PrivacyParameters
from common.accounting.releases import AmplifiedRelease
from common.mechanisms.base import Mechanism, Reports, Vector
from common.messages.submission import Value
from lab.bounds.attack import epsilon_lower, epsilon_of_rounds

FEW_USERS: Final = 100
"""Maximum users for computing the attack on random numbers of dummies; more users take minutes."""
_STATISTIC: Final = "likelihood ratio of all messages that do not support the third value"
_CERTAIN_SCORE: Final = 1e100
"""Score of messages that the other value cannot produce; finite, to allow subtraction."""
_MIN_TRIALS: Final = 1000
_SLOW_MESSAGES: Final = 50_000
"""Maximum messages, or trials with one user, where dummies are drawn user by user."""


def draw_messages(
    subject: AuditSubject, held: NDArray[np.int64], adding: int, rng: Generator
) -> tuple[Reports, NDArray[np.int64]]:
    """
    Draw all messages of many trials, and return them with the trial of each.

    `held` has the item of each user, shape (trials, users); `adding` of them add dummies.
    """
    task, mechanism, (trials, users) = subject.task, subject.mechanism, held.shape
    reports = subject.ports.randomize(mechanism, held.ravel(), rng)
    trial = np.repeat(np.arange(trials), users * task.own_reports)
    if not (adding and task.dummies.maximum):
        return reports, trial
    numbers, dummies = task.dummies.draw(mechanism, trials * adding, rng)
    of_dummies = np.repeat(np.repeat(np.arange(trials), adding), numbers)
    return np.concatenate([reports, dummies]), np.concatenate([trial, of_dummies])


def compared_items(mechanism: Mechanism) -> tuple[int, int]:
    """Return the two items that attacks distinguish: the first and the last."""
    return 0, mechanism.domain_size - 1


def user_worlds(
    subject: AuditSubject, trials: int, rng: Generator, *, dummies: bool = True, rounds: int = 1
) -> list[Vector]:
    """
    Draw the scores, summed over rounds, of one user's messages for each compared item.

    At most `trials` trials. Without `dummies`, the user sends reports only.
    """
    if dummies and not subject.task.dummies.uniform:
        trials = min(trials, _SLOW_MESSAGES)

    def world(item: int) -> Vector:
        held = np.full((trials, 1), item)
        drawn = [draw_messages(subject, held, int(dummies), rng) for _ in range(rounds)]
        return np.asarray(sum(scores(subject, *each, trials) for each in drawn))

    return [world(item) for item in compared_items(subject.mechanism)]


def value_worlds(subject: AuditSubject, pair: tuple[Value, Value], rng: Generator) -> list[Vector]:
    """Draw the log likelihood ratios of reports on the first value, then on the second."""
    family, count = subject.family, subject.family.reports_each(subject.sizes.games)
    drawn = [subject.ports.draw_reports(family, value, count, rng) for value in pair]
    first, second = ([family.log_likelihood(value, r) for r in drawn] for value in pair)
    return [_finite(own - other) for own, other in zip(first, second, strict=True)]


def _finite(odds: Vector) -> Vector:
    """Replace infinite log odds, and those of messages that neither value can produce."""
    return np.nan_to_num(odds, nan=0.0, posinf=_CERTAIN_SCORE, neginf=-_CERTAIN_SCORE)


def weights(mechanism: Mechanism, reports: Reports, item: int) -> Vector:
    """Return w(item) of each report, or its likelihood if it has no reduction, up to a factor."""
    supported, reduction = mechanism.supports(reports, item), mechanism.reduction
    if reduction is None:
        return np.asarray(1 + math.expm1(mechanism.local_epsilon) * supported)
    return np.asarray(reduction.blanket + reduction.signal * reduction.answers * supported)


def scores(
    subject: AuditSubject, reports: Reports, trial: NDArray[np.int64], trials: int
) -> Vector:
    """Return the log odds of the first item against the last; shape (trials,)."""
    mechanism, level = subject.mechanism, subject.family.level_of(reports)
    score: Vector = np.zeros(trials)
    for number in np.unique(level):
        there = level == number
        first, last = (
            np.bincount(
                trial[there], weights=weights(mechanism, reports[there], item), minlength=trials
            )
            for item in compared_items(mechanism)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(first) - np.log(last)
        score += _finite(odds)
    return score


def recognized_epsilon(subject: AuditSubject) -> float:
    """Return the local ε, which one recognized report reveals; NotCoveredError if unknown."""
    support: SupportDistribution = subject.family.support
    local_epsilon: float = subject.mechanism.local_epsilon
    return local_epsilon if support.own > 0 else 0.0


def proven_epsilon(parameters: PrivacyParameters, honest: int, adding: int) -> float | None:
    """
    Compute a lower bound on ε by the accountant's attack on the analyzer's view of all rounds.

    `adding` of the `honest` users add dummies. None without amplification, or if the attack cannot
    model the noise, is slow or fails.
    """
    release = parameters.release_of(honest, honest, adding)
    delta = parameters.delta
    if not isinstance(release, AmplifiedRelease):
        return None
    reduction, among = release.reduction, release.anonymity_set
    if parameters.rounds > 1:
        if among.random_dummies is not None or not reduction.has_third:
            return None
        return epsilon_of_rounds(reduction, among, parameters.rounds, delta)
    if among.random_dummies is not None and honest > FEW_USERS:
        return None
    return epsilon_lower(reduction, among, delta) or None


def run_batch_game(
    subject: AuditSubject, honest: int, adding: int, rng: Generator, rounds: int = 1
) -> GameResult:
    """
    Run the attack by an analyzer that knows all messages except those of `honest` users.

    All honest users but the victim hold the same third value. The attack drops reports that support
    it and counts how often the rest support each of the victim's two values. `adding` of the honest
    users, the victim included, add dummies. Computed for the worst third value, this attack gains
    nearly the whole claim; measured, it has power only if few users are honest.
    """
    task, mechanism = subject.task, subject.mechanism
    messages = rounds * (honest + adding * task.dummies.expected_per_user)
    trials = max(_MIN_TRIALS, int(subject.sizes.batches / messages))
    if not task.dummies.uniform:
        trials = min(trials, max(_MIN_TRIALS, _SLOW_MESSAGES // (rounds * honest)))
    last = task.domain_size - 1
    third = task.domain_size // 2 if last > 1 else last
    # Reports of a hierarchy are true, so the analyzer simply subtracts those of other users.
    others = 0 if len(task.views) > 1 else honest - 1

    def one_round(item: int) -> Vector:
        held = np.full((trials, others + 1), third)
        held[:, 0] = item
        reports, trial = draw_messages(subject, held, adding, rng)
        if third != last and others:
            kept = ~mechanism.supports(reports, third)
            reports, trial = reports[kept], trial[kept]
        if task.shuffler.only_permutes:
            return scores(subject, reports, trial, trials)
        # If the shuffler adds dummies that name items, these two counts are all the evidence.
        kept = task.shuffler.draw_kept(len(reports), rng)
        counts = [
            np.bincount(trial[kept & mechanism.supports(reports, compared)], minlength=trials)
            + task.shuffler.by_view[0].draw_item_dummies(trials, rng)
            for compared in compared_items(mechanism)
        ]
        return np.asarray(counts[0] - counts[1], dtype=np.float64)

    first, second = (
        np.sum([one_round(item) for _ in range(rounds)], axis=0)
        for item in compared_items(mechanism)
    )
    over = f", over {rounds} rounds" if rounds > 1 else ""
    return run_game(first, second, delta=task.delta, statistic=_STATISTIC + over)
