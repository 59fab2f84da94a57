"""
Attacks on a whole batch by the analyzer: alone, with colluding users, on users without dummies,
over several rounds, and on users split into groups.

Colluding users hand over their reports and dummies. With many honest users no game has power; the
claim then rests on the computed attack and on tests of the code's distributions.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, Final

from numpy.random import Generator

from audit.coalitions import messages
from audit.coalitions.messages import FEW_USERS, proven_epsilon, run_batch_game
from audit.finding import Checks, Rows
from audit.game import game_row, run_game
from audit.harness.tasks import with_shufflers
from audit.scenario import AuditSubject
from common.accounting import guarantees
from common.messages.guarantee import rounded_up
from common.task.task import honest_share

_SHARES: Final = (0.0, 0.9)
"""Shares of colluding users for which claim and attack are computed."""
GAME_USERS: Final = 10
"""Number of honest users in games on missing dummies and on rounds."""
_HONEST_USERS: Final = (FEW_USERS, GAME_USERS, 1)
_POOLED_ROUNDS: Final = 2
_ROUNDS: Final = (2, 10, 30)


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
        yield game_row(
            claimed=claimed,
            exact=proven_epsilon(parameters, left, left),
            result=run_batch_game(subject, left, left, rng) if left <= FEW_USERS else None,
            title=f"{left:,} of {n_users:,} users honest",
            sentence=_meaning(n_users - left, claimed.epsilon),
            advice="Ask more people, or raise n_min: the more people answer, the less each answer "
            "reveals. Require tokens, so that nobody can answer under many names.",
        )


def _meaning(colluders: int, epsilon: float) -> str:
    """State what a guarantee against the analyzer and colluding users means."""
    who = "the analyzer" + f" and {colluders:,} colluding users" * (colluders > 0)
    if math.isinf(epsilon):
        return f"Nothing is guaranteed against {who}."
    return (
        f"Anything that {who} can see is at most e^ε times as likely under one value of yours as "
        f"under another, plus δ: ε = {rounded_up(epsilon)}."
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
    worlds = messages.user_worlds(subject, games, rng, dummies=False, rounds=_POOLED_ROUNDS)
    yield _rounds_row(
        result=run_game(*worlds),
        claimed=ports.local_guarantee(subject.linking, pooled),
        exact=_POOLED_ROUNDS * messages.recognized_epsilon(subject),
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
