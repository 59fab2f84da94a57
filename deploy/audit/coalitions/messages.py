"""
Draw users' messages, score them for two items, and attack a whole batch as the analyzer.

The deployed code draws reports, dummies and numbers of dummies. A report of item v is uniform with
probability γ and otherwise uniform among those that support v, a share 1/l of all. It is thus
w(v) = γ + (1-γ)·l·[supports v] times as likely as a dummy. One user's messages contain one true
report, so the likelihood of v is proportional to the mean of w(v) over them [BBGN19], and the ratio
of two items' sums is the most powerful statistic.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.guarantees import PrivacyParameters
from common.accounting.reference.attack import epsilon_lower, epsilon_of_rounds
from common.accounting.releases import AmplifiedRelease
from common.mechanisms.base import Mechanism, Reports, Vector
from common.task.task import Task
from deploy.audit.game import GameResult, run_game
from deploy.audit.scenario import AuditSubject
from deploy.simulate.collection import draw_group_dummies
from shuffler.item_dummies import draw_item_dummies, draw_kept

FEW_USERS: Final = 100
"""Maximum users for computing the attack on random numbers of dummies; more users take minutes."""
STATISTIC: Final = "likelihood ratio of all messages that do not support the third value"
_CERTAIN_SCORE: Final = 1e100
"""Score of messages that the other value cannot produce; finite, to allow subtraction."""
_MIN_TRIALS: Final = 1000
_SLOW_MESSAGES: Final = 50_000
"""Maximum messages, or trials with one user, where dummies are drawn user by user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Messages of many trials."""

    reports: Reports
    trial: NDArray[np.int64]
    """Trial of each report; same shape as reports."""
    trials: int

    def joined(self, other: "Sent") -> "Sent":
        """Return these messages and others of the same trials."""
        return Sent(
            reports=np.concatenate([self.reports, other.reports]),
            trial=np.concatenate([self.trial, other.trial]),
            trials=self.trials,
        )

    def without(self, dropped: NDArray[np.bool_]) -> "Sent":
        """Return the messages that the mask `dropped` does not select."""
        return Sent(reports=self.reports[~dropped], trial=self.trial[~dropped], trials=self.trials)


def true_reports(
    mechanism: Mechanism, item: int, trials: int, rng: np.random.Generator, each: int = 1
) -> Sent:
    """Draw the randomized reports of `each` users who hold an item, in each trial."""
    trial = np.repeat(np.arange(trials), each)
    values = np.full(len(trial), item, dtype=np.int64)
    return Sent(reports=mechanism.randomize(values, rng), trial=trial, trials=trials)


def user_dummies(
    task: Task, mechanism: Mechanism, trials: int, rng: np.random.Generator, each: int = 1
) -> Sent:
    """Draw the dummies of `each` users, in each trial."""
    numbers, reports = draw_group_dummies(mechanism, task.dummies, trials * each, rng)
    trial = np.repeat(np.repeat(np.arange(trials), each), numbers)
    return Sent(reports=reports, trial=trial, trials=trials)


def compared_items(mechanism: Mechanism) -> tuple[int, int]:
    """Return the two items that attacks distinguish: the first and the last."""
    return 0, mechanism.domain_size - 1


def user_messages(subject: AuditSubject, item: int, trials: int, rng: np.random.Generator) -> Sent:
    """Draw all messages of one user who holds an item, in each trial."""
    sent = true_reports(subject.mechanism, item, trials, rng)
    if subject.task.dummies.maximum:
        sent = sent.joined(user_dummies(subject.task, subject.mechanism, trials, rng))
    return sent


def user_worlds(subject: AuditSubject, trials: int, rng: np.random.Generator) -> list[Vector]:
    """
    Draw the scores of all messages of a user who holds the first item, then the last.

    Each has shape (trials,), with fewer trials where dummies are drawn user by user.
    """
    trials = trials if subject.task.dummies.uniform else min(trials, _SLOW_MESSAGES)
    mechanism = subject.mechanism
    return [
        scores(mechanism, user_messages(subject, item, trials, rng))
        for item in compared_items(mechanism)
    ]


def report_worlds(
    mechanism: Mechanism, trials: int, rng: np.random.Generator, rounds: int = 1
) -> list[Vector]:
    """
    Draw the scores of the true reports of a user who holds the first item, then the last.

    Each has shape (trials,) and is summed over all rounds; dummies are left out.
    """
    return [
        np.sum(
            [scores(mechanism, true_reports(mechanism, item, trials, rng)) for _ in range(rounds)],
            axis=0,
        )
        for item in compared_items(mechanism)
    ]


def weights(mechanism: Mechanism, reports: Reports, item: int) -> Vector:
    """
    Return w(item) of each report, up to a common factor; same shape as reports.

    Mechanisms without a reduction have no dummies; their weights are likelihoods of reports.
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
        for item in compared_items(mechanism)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(sums[0]) - np.log(sums[1])
    score: Vector = np.nan_to_num(odds, nan=0.0, posinf=_CERTAIN_SCORE, neginf=-_CERTAIN_SCORE)
    return score


def _count_scores(task: Task, mechanism: Mechanism, sent: Sent, rng: np.random.Generator) -> Vector:
    """
    Return the difference of the items' counts in each forwarded batch; shape (trials,).

    If the shuffler adds dummies that name items, these two counts are all the evidence.
    """
    kept = sent.without(~draw_kept(task.shuffler, len(sent.reports), rng))
    first, last = (
        np.bincount(kept.trial[mechanism.supports(kept.reports, item)], minlength=sent.trials)
        + draw_item_dummies(task.shuffler, sent.trials, rng)
        for item in compared_items(mechanism)
    )
    return np.asarray(first - last, dtype=np.float64)


def proven_epsilon(parameters: PrivacyParameters, population: AnonymitySet) -> float | None:
    """
    Compute a lower bound on ε by the accountant's attack on the analyzer's view of all rounds.

    Returns None without amplification, or if the attack cannot model the noise, is slow or fails.
    """
    release, delta = parameters.release(population), parameters.delta
    if not isinstance(release, AmplifiedRelease):
        return None
    reduction, among = release.reduction, release.anonymity_set
    if parameters.rounds > 1:
        if among.random_dummies is not None or reduction.third_value == "none":
            return None
        return epsilon_of_rounds(reduction, among, parameters.rounds, delta)
    if among.random_dummies is not None and population.users > FEW_USERS:
        return None
    return epsilon_lower(reduction, among, delta) or None


def run_batch_game(
    subject: AuditSubject, honest: int, adding: int, rng: np.random.Generator, rounds: int = 1
) -> GameResult:
    """
    Run the attack by an analyzer that knows all messages except those of `honest` users.

    All honest users but the victim hold the same third value. The attack drops reports that support
    it and counts how often the rest support each of the victim's two values. `adding` of the honest
    users, the victim included, add dummies. Scores are summed over all rounds. Computed,
    this attack gains nearly the whole claim; measured, it has power only if few users are honest.
    """
    task, mechanism = subject.task, subject.mechanism
    messages = rounds * (honest + adding * task.dummies.expected_per_user)
    trials = max(_MIN_TRIALS, int(subject.sizes.batches / messages))
    if not task.dummies.uniform:
        trials = min(trials, max(_MIN_TRIALS, _SLOW_MESSAGES // (rounds * honest)))
    last = task.domain_size - 1
    third = task.domain_size // 2 if last > 1 else last

    def one_round(item: int) -> Vector:
        sent = true_reports(mechanism, item, trials, rng)
        sent = sent.joined(true_reports(mechanism, third, trials, rng, each=honest - 1))
        if task.dummies.maximum:
            sent = sent.joined(user_dummies(task, mechanism, trials, rng, each=adding))
        if third != last and honest > 1:
            sent = sent.without(mechanism.supports(sent.reports, third))
        if task.shuffler.only_permutes:
            return scores(mechanism, sent)
        return _count_scores(task, mechanism, sent, rng)

    first, second = (
        np.sum([one_round(item) for _ in range(rounds)], axis=0)
        for item in compared_items(mechanism)
    )
    return run_game(first, second, delta=task.delta)
