"""
Attacks on one user's messages.

The shuffler and analyzer together link each opened report to its sender. A shuffler isolates a user
by replacing all other reports (the n-1 attack). The analyzer links messages with equal seeds.
"""

import math
from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.random import Generator

from audit.coalitions import messages
from audit.coalitions.messages import (
    proven_epsilon,
    recognized_epsilon,
    user_worlds,
    value_worlds,
)
from audit.finding import Checks, Finding, Rows
from audit.game import game_row, run_game
from audit.scenario import AuditSubject
from audit.statistics import p_poisson
from common.accounting.assumptions import ENCRYPTED
from common.accounting.guarantees import analyzer_guarantee, guarantees_under, local_guarantee
from common.task.shuffler_spec import PERMUTE_ONLY
from deploy.pages.guarantee_sentences import best_guarantees

TESTED_DELTA: Final = 0.01
"""δ of the game with a user's own dummies: large enough to be measured."""
_MAX_MESSAGES: Final = 3
"""Messages per trial above which fewer trials are drawn."""
_MAX_TRIALS: Final = 4
"""Maximum factor by which a game of one report exceeds the sample size if support is rare."""
_LOST_SHARE: Final = 0.07
"""Maximum share of the local ε lost to the confidence bounds on two rare probabilities."""
_SIGMAS: Final = 5.5
"""Standard deviations between an estimated probability and its confidence bound."""
_POOLED_ADVICE: Final = (
    "Lower local_epsilon, the only protection against these two together, and let independent "
    "organizations operate them."
)
_LINKED_USERS: Final = 200_000
_FORGED_REPORTS: Final = 200
_FORGED_BATCHES: Final = 50
_N_MINUS_ONE_ASSUMPTIONS: Final = (
    "your own device randomizes as the task says, and adds its dummies",
    "the analyzer shows the shuffler the counts that it publishes, and nothing else",
    ENCRYPTED,
)


def run_pooled(subject: AuditSubject, rng: Generator) -> Rows:
    """Run the game on a user's own reports and, if there are dummies for items, on all messages."""
    yield _recognized_report(subject, rng)
    if subject.of_items and subject.task.dummies.maximum:
        yield _with_dummies(subject, rng)


def _recognized_report(subject: AuditSubject, rng: Generator) -> Finding:
    """Run the game on one report, for the values that are easiest to distinguish."""
    task, exact, required = subject.task, None, 0.0
    noisy = math.isfinite(task.local_epsilon)
    if subject.of_items:
        needed, most = _trials(subject)
        worlds = [user_worlds(subject, min(needed, most), rng, dummies=False)]
        exact = recognized_epsilon(subject)
        required = exact if not noisy or needed <= most else 0.0
    else:
        pairs = subject.family.worst_values
        worlds = [value_worlds(subject, pair, rng) for pair in pairs]
    results = [run_game(*scores) for scores in worlds]
    return game_row(
        result=max(results, key=lambda result: result.empirical_epsilon_lower),
        claimed=subject.ports.local_guarantee(subject.linking, subject.parameters),
        exact=exact,
        required_epsilon=required,
        tests=len(results),
        title="Your own report, recognized",
        statistic="likelihood ratio of the one report",
        sentence=f"If {'both shufflers' if task.relay else 'the shuffler'} and analyzer pool "
        "what they saw, "
        + (
            "they know which report is yours; only the noise that your device added to it still "
            "protects you."
            if noisy
            else "they can read your value: reports carry no noise."
        ),
        advice=_POOLED_ADVICE if noisy else "Choose a protocol with local noise.",
    )


def _with_dummies(subject: AuditSubject, rng: Generator) -> Finding:
    """Measure the effect of the user's own dummies, at a measurable δ."""
    task, parameters = subject.task, replace(subject.parameters, delta=TESTED_DELTA)
    claimed = best_guarantees(guarantees_under(parameters, subject.n_users))["shuffler+analyzer"]
    messages = 1 + task.dummies.expected_per_user
    trials = int(subject.sizes.games * min(1.0, _MAX_MESSAGES / messages))
    parameters = replace(parameters, reduction=subject.mechanism.reduction, shuffler=PERMUTE_ONLY)
    return game_row(
        result=run_game(*user_worlds(subject, trials, rng), delta=claimed.delta),
        claimed=claimed,
        exact=proven_epsilon(parameters, 1, 1) if claimed.delta > 0 else None,
        title="Your report among your own dummies",
        statistic="likelihood ratio of all messages of one user",
        sentence="Your own dummies make it slightly less certain which of your messages is the "
        "true report; they cannot hide a report that reveals your value.",
        advice=_POOLED_ADVICE,
    )


def _trials(subject: AuditSubject) -> tuple[int, int]:
    """
    Return the number n of trials that shows 90 % of the local ε, and the maximum allowed.

    The bounds on the support probabilities p and q lower ε by about z/√(np) + z/√(nq).
    """
    own, epsilon = subject.family.support.own, subject.task.local_epsilon
    least, most = subject.sizes.games, _MAX_TRIALS * subject.sizes.games
    if math.isinf(epsilon):
        return least, most
    spread = 1 / math.sqrt(own) + 1 / math.sqrt(own * math.exp(-epsilon))
    return max(least, int((_SIGMAS * spread / (_LOST_SHARE * epsilon)) ** 2)), most


def run_n_minus_one(subject: AuditSubject, rng: Generator) -> Rows:
    """
    Run the attack by a shuffler that replaces all reports except the victim's with its own.

    It subtracts its reports and dummies from the published result. The remaining counts show how
    often the victim's messages support each item, and so determine the likelihood ratio. No
    findings without amplification.
    """
    parameters, task = subject.parameters, subject.task
    if parameters.reduction is None:
        return
    trials = int(subject.sizes.games / (1 + task.dummies.expected_per_user))
    worlds = user_worlds(subject, trials, rng)
    found, dummies = 0, subject.mechanism.dummies
    for _ in range(_FORGED_BATCHES):
        sent, _ = messages.draw_messages(subject, np.zeros((1, 1), dtype=np.int64), 1, rng)
        reports = np.concatenate([sent, dummies(_FORGED_REPORTS, rng)])
        rows = np.ascontiguousarray(reports).view(np.uint8).reshape(len(reports), -1)
        delivered = subject.ports.permute(rows, rng)
        found += Counter(map(bytes, delivered)) == Counter(map(bytes, rows))
    if task.shuffler.only_permutes:
        claimed = analyzer_guarantee(parameters, subject.n_users, honest=1)
        claimed = replace(claimed, assumptions=_N_MINUS_ONE_ASSUMPTIONS)
        exact = proven_epsilon(parameters, 1, 1)
    else:
        claimed, exact = local_guarantee("analyzer", parameters), recognized_epsilon(subject)
    row = game_row(
        result=run_game(*worlds, delta=claimed.delta),
        claimed=claimed,
        exact=exact,
        title="All reports but one user's replaced",
        coalition="shuffler+users",
        statistic="likelihood ratio of the two values' counts; victim's messages recovered from "
        f"{found} of {_FORGED_BATCHES} forged batches",
        sentence="A shuffler that replaces everybody else's reports with its own finds yours in "
        "the published result; only your own noise and dummies protect you.",
        advice="Require tokens, plant sentinels, and let devices check that they were counted: "
        "this detects missing reports.",
    )
    lost = (
        f"Only {found} of {_FORGED_BATCHES} forged batches held exactly the forged reports and the "
        "victim's messages."
    )
    yield row if found == _FORGED_BATCHES else replace(row, verdict="broken", sentence=lost)


def run_linking(subject: AuditSubject, rng: Generator) -> Rows:
    """Check that reports' seeds, if any, repeat only by chance, in two rounds and in one."""
    mechanism, checks = subject.mechanism, Checks()
    if "seed" not in (mechanism.report_dtype.names or ()):
        return
    n_users, seeds = _LINKED_USERS, subject.family.n_seeds
    held, start = np.zeros(n_users, dtype=np.int64), subject.ports.start_generator
    first, second = (mechanism.randomize(held, start(rng))["seed"] for _ in range(2))
    linked = int((first == second).sum())
    checks.test("the same seed in two rounds", p_poisson(linked, n_users / seeds))
    neighbours = int((first[1:] == first[:-1]).sum())
    checks.test("the same seed in neighbouring users", p_poisson(neighbours, n_users / seeds))
    yield checks.finding(
        coalition="analyzer",
        sentence="Every report has a fresh random seed: seeds link no two reports of one user "
        "across rounds, and no two users.",
        trials=n_users,
        expected=1 / seeds,
        measured=linked / n_users,
    )
