"""
Attacks on a whole batch by the analyzer: alone, with colluding users, on users without dummies,
over several rounds, and on users split into groups.

Colluding users hand over their reports and dummies. With many honest users no game has power; the
claim then rests on the computed attack and on tests of the code's distributions.

The deployed code draws reports and dummies. A report of item v is uniform with probability γ and
otherwise uniform among those that support v, a share 1/l of all. It is thus
w(v) = γ + (1-γ)·l·[supports v] times as likely as a dummy. One user's messages contain one true
report, so the likelihood of v is proportional to the mean of w(v) over them [BBGN19], and the ratio
of two items' sums is the most powerful statistic.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.audit.families.family import SupportDistribution
from shuffledp.audit.finding import Checks, GameResult, Rows, game_row, run_game
from shuffledp.audit.harness.tasks import with_shufflers
from shuffledp.audit.scenario import AuditSubject
from shuffledp.common.accounting import guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.mechanisms.base import Mechanism, Reports, Vector
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.messages.submission import Value
from shuffledp.common.task.task import honest_share
from shuffledp.lab.bounds.attack import epsilon_lower, epsilon_of_rounds

FEW_USERS: Final = 100
"""Maximum users for computing the attack on random numbers of dummies; more users take minutes."""
_STATISTIC: Final = "likelihood ratio of all messages that do not support the third value"
_CERTAIN_SCORE: Final = 1e100
"""Score of messages that the other value cannot produce; finite, to allow subtraction."""
_MIN_TRIALS: Final = 1000
_SLOW_MESSAGES: Final = 50_000
"""Maximum messages, or trials with one user, where dummies are drawn user by user."""
_SHARES: Final = (0.0, 0.9)
"""Shares of colluding users for which claim and attack are computed."""
GAME_USERS: Final = 10
"""Number of honest users in games on missing dummies and on rounds."""
_HONEST_USERS: Final = (FEW_USERS, GAME_USERS, 1)
_POOLED_ROUNDS: Final = 2
_ROUNDS: Final = (2, 10, 30)


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


def run_colluders(subject: AuditSubject, rng: Generator) -> Rows:
    """
    Run the attack with numbers of colluders from none to all users but the victim.

    Without amplification, one finding states the local guarantee.
    """
    n_users, parameters = subject.n_users, subject.parameters
    if parameters.reduction is None:
        yield game_row(
            claimed=subject.ports.local_guarantee("analyzer", parameters),
            title="Guarantee without a shuffler",
            statistic="measured against the shuffler and analyzer together",
            sentence="Under this protocol only the noise of your own report protects you, with or "
            "without a shuffler.",
        )
        return
    numbers = {max(1, n_users - int(share * n_users)) for share in _SHARES}
    numbers |= {number for number in _HONEST_USERS if number <= n_users}
    for left in sorted(numbers, reverse=True):
        claimed = subject.ports.analyzer_guarantee(parameters, n_users, left)
        who = "the analyzer" + f" and {n_users - left:,} colluding users" * (left < n_users)
        yield game_row(
            claimed=claimed,
            exact=proven_epsilon(parameters, left, left),
            result=run_batch_game(subject, left, left, rng) if left <= FEW_USERS else None,
            title=f"{left:,} of {n_users:,} users honest",
            sentence=f"Nothing is guaranteed against {who}."
            if math.isinf(claimed.epsilon)
            else f"Anything that {who} can see is at most e^ε times as likely under one value of "
            f"yours as under another, plus δ: ε = {rounded_up(claimed.epsilon)}.",
            advice="Ask more people, or raise n_min: the more people answer, the less each answer "
            "reveals. Require tokens, so that nobody can answer under many names.",
        )


def run_skippers(subject: AuditSubject, rng: Generator) -> Rows:
    """
    Compute the effect of users who add no dummies, and measure it among few users.

    No findings without dummies or amplification.
    """
    if not subject.task.dummies.maximum or subject.parameters.reduction is None:
        return
    parameters, n_users, few = subject.parameters, subject.n_users, GAME_USERS
    claim, few_claim = (
        subject.ports.skippers_guarantee(parameters, users, 1) for users in (n_users, few)
    )
    attack, few_attack = (proven_epsilon(parameters, users, 1) for users in (n_users, few))
    yield game_row(
        claimed=claim,
        exact=attack,
        title=f"{n_users - 1:,} of {n_users:,} users add no dummies",
        sentence="Users who skip their dummies leave fewer reports to hide among: ε = "
        f"{rounded_up(claim.epsilon)} if all but you do.",
        advice="Set assumed_honest_fraction below 1: the task's claim then relies on that share of "
        "its users only.",
    )
    yield game_row(
        claimed=few_claim,
        exact=few_attack,
        result=run_batch_game(subject, few, 1, rng),
        aside=True,
        title=f"{few - 1} of {few} users add no dummies",
        sentence=f"If only one of {few} users adds dummies, the attack gains no more than is "
        "claimed for that case.",
    )


def run_rounds(subject: AuditSubject, rng: Generator) -> Rows:
    """Attack the same users over several rounds, as the analyzer alone and with the shuffler."""
    ports, games = subject.ports, subject.sizes.games
    pooled = replace(subject.parameters, rounds=_POOLED_ROUNDS)
    worlds = user_worlds(subject, games, rng, dummies=False, rounds=_POOLED_ROUNDS)
    yield _rounds_row(
        result=run_game(*worlds),
        claimed=ports.local_guarantee(subject.linking, pooled),
        exact=_POOLED_ROUNDS * recognized_epsilon(subject),
        title=f"{_POOLED_ROUNDS} rounds, your reports recognized",
        statistic=f"sum of the log likelihood ratios of {_POOLED_ROUNDS} reports",
        sentence=f"A coalition that links your reports learns twice as much from {_POOLED_ROUNDS} "
        "rounds as from one.",
    )
    if subject.parameters.reduction is None or not subject.task.shuffler.only_permutes:
        return
    n_users, few = subject.n_users, min(GAME_USERS, subject.n_users)
    for rounds, honest in (*((number, n_users) for number in _ROUNDS), (_POOLED_ROUNDS, few)):
        parameters = replace(subject.parameters, rounds=rounds)
        claimed = ports.analyzer_guarantee(parameters, n_users, honest)
        game = run_batch_game(subject, honest, honest, rng, rounds) if honest < n_users else None
        yield _rounds_row(
            claimed=claimed,
            exact=proven_epsilon(parameters, honest, honest),
            result=game,
            title=f"{rounds} rounds, {honest:,} of {n_users:,} users honest",
            sentence=f"After {rounds} such rounds, ε = {rounded_up(claimed.epsilon)} bounds what "
            "the analyzer has learned about you.",
        )


_rounds_row = partial(
    game_row,
    aside=True,
    advice="Name the population in the task and give it a budget: the analyzer then refuses a "
    "round that would exceed it. Ask as rarely as you can.",
)


def run_partition(subject: AuditSubject, rng: Generator) -> Rows:
    """Check the smallest group's claim and distinct digests; no findings without amplification."""
    task, parameters = subject.task, subject.parameters
    if parameters.reduction is None:
        return
    claimed = guarantees.claimed_guarantee(parameters, task.n_min)
    honest = honest_share(task.n_min, task.assumed_honest_fraction)
    yield game_row(
        claimed=replace(claimed, epsilon=task.central_epsilon),
        exact=proven_epsilon(parameters, honest, honest),
        title=f"Users split into groups of n_min = {task.n_min:,}",
        sentence="However the analyzer splits its users into tasks, no batch of fewer than n_min "
        "users is released, and every device has checked the guarantee for that number: "
        f"ε = {rounded_up(task.central_epsilon)}.",
        advice="Raise n_min: it bounds the smallest group. Operators set the shuffler's "
        "minimum_batch, and devices their total_central_epsilon_cap.",
    )
    # Different tasks need different bytes, hence digests. Keep the task valid under each change.
    checks, more = Checks(), math.nextafter(task.delta, 1)
    target, budget = max(task.n_min + 1, task.target_size), max(more, task.budget_delta)
    task = replace(task, target_size=target, budget_delta=budget)
    encodings = {subject.ports.task_bytes(task)}
    changed: dict[str, Any] = {
        "nonce": rng.bytes(len(task.nonce)),
        "analyzer_key": rng.bytes(len(task.analyzer_key)),
        "shufflers": with_shufflers(task, {"key": rng.bytes(len(task.shuffler_key))}).shufflers,
        "n_min": task.n_min + 1,
        "deadline": task.deadline - 1,
        "delta": more,
    }
    if task.tokens is not None:
        changed["tokens"] = None
    for name, value in changed.items():
        other = subject.ports.task_bytes(replace(task, **{name: value}))
        checks.require(f"another {name} changes the digest", other not in encodings)
        encodings.add(other)
    yield checks.finding(
        title="Keys and parameters are part of a task's digest",
        coalition="analyzer",
        sentence="A different key, deadline or n_min gives a task with a different digest, which "
        "users can compare.",
        advice="Do not collect with this version: tasks with the same digest can differ.",
    )
