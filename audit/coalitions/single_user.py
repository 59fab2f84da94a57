"""
Attacks on one user's messages, in the audited task and in designs that they must break.

The shuffler and analyzer together link each opened report to its sender. A shuffler isolates a user
by replacing all other reports (the n-1 attack). The analyzer links messages with equal seeds. The
other designs are pureDUMP, dummies made by the shuffler, and OD-HP as printed.
"""

import math
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.audit.coalitions import whole_batch
from shuffledp.audit.finding import Checks, Finding, Rows, game_row, not_reached, run_game
from shuffledp.audit.harness.tasks import sample_task
from shuffledp.audit.scenario import AuditSubject, Ports
from shuffledp.audit.statistics import p_poisson
from shuffledp.common.accounting import guarantees
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.assumptions import ENCRYPTED, HONEST_SHUFFLER
from shuffledp.common.accounting.published import BoundSetting, od_hp_theorem_1
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.hashing.string_hashing import StringHashing
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.guarantee import REPLACE_ONE, Guarantee
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.deploy.pages.guarantee_sentences import best_guarantees

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
_ITEMS: Final = 26
_USERS: Final = 10_000
_HALF: Final = shuffler_spec.RATIO_SUM // 2
_GEOMETRIC: Final = ShufflerSpec(
    noise=GeometricNoise(peak=20, left_weight=_HALF, right_weight=_HALF, most=60)
)
_SHUFFLER_MADE: Final = (
    ("sageo: dummies by the shuffler alone", "sageo", math.inf),
    ("hybrid: dummies by the shuffler, and local noise", "hybrid", 4.0),
)
_REQUIRED_SHARE: Final = 0.9
"""Share of ε that an attack must gain if only local noise protects a user."""

_X, _OTHER_X, _Z = 0, 1, 2
_PRINTED_ITEMS: Final = ("x", "x'", "z")
_PRINTED_USERS: Final = 350
_BUCKETS: Final = 16
_DUMMIES: Final = 10
_LOCAL_EPSILON: Final = 12.0
_DELTA: Final = 1e-6
_MIN_TRIALS: Final = 1000
_MESSAGES_PER_TRIAL: Final = 1500
"""Divisor that turns the sample size in messages into the number of trials."""
_MESSAGES_TOGETHER: Final = 10**6


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
        worlds = [whole_batch.user_worlds(subject, min(needed, most), rng, dummies=False)]
        exact = whole_batch.recognized_epsilon(subject)
        required = exact if not noisy or needed <= most else 0.0
    else:
        pairs = subject.family.worst_values
        worlds = [whole_batch.value_worlds(subject, pair, rng) for pair in pairs]
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
    claims = guarantees.guarantees_under(parameters, subject.n_users)
    claimed = best_guarantees(claims)["shuffler+analyzer"]
    messages = 1 + task.dummies.expected_per_user
    trials = int(subject.sizes.games * min(1.0, _MAX_MESSAGES / messages))
    alone, reduction = shuffler_spec.PERMUTE_ONLY, subject.mechanism.reduction
    parameters = replace(parameters, reduction=reduction, shuffler=alone)
    return game_row(
        result=run_game(*whole_batch.user_worlds(subject, trials, rng), delta=claimed.delta),
        claimed=claimed,
        exact=whole_batch.proven_epsilon(parameters, 1, 1) if claimed.delta > 0 else None,
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
    worlds = whole_batch.user_worlds(subject, trials, rng)
    found, dummies = 0, subject.mechanism.dummies
    for _ in range(_FORGED_BATCHES):
        sent, _ = whole_batch.draw_messages(subject, np.zeros((1, 1), dtype=np.int64), 1, rng)
        reports = np.concatenate([sent, dummies(_FORGED_REPORTS, rng)])
        rows = np.ascontiguousarray(reports).view(np.uint8).reshape(len(reports), -1)
        delivered = subject.ports.permute(rows, rng)
        found += Counter(map(bytes, delivered)) == Counter(map(bytes, rows))
    if task.shuffler.only_permutes:
        claimed = guarantees.analyzer_guarantee(parameters, subject.n_users, honest=1)
        claimed = replace(claimed, assumptions=_N_MINUS_ONE_ASSUMPTIONS)
        exact = whole_batch.proven_epsilon(parameters, 1, 1)
    else:
        claimed = guarantees.local_guarantee("analyzer", parameters)
        exact = whole_batch.recognized_epsilon(subject)
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


def run_pure_dump(subject: AuditSubject, rng: Generator) -> Rows:
    """Attack pureDUMP, which has dummies but no noise, as the shuffler and analyzer together."""
    other = _other_design(
        subject,
        protocol="puredump",
        local_epsilon=math.inf,
        dummies_per_user=2.0,
        n_min=_USERS,
        target_size=_USERS,
    )
    name = f"pureDUMP over {_ITEMS} values"
    for row, least in zip(run_pooled(other, rng), (math.inf, 0.0), strict=True):
        yield _require_epsilon(replace(row, subject=name, advice=""), least)


def run_shuffler_dummies(subject: AuditSubject, rng: Generator) -> Rows:
    """Run the n-1 attack by a shuffler that knows its dummies, the result and all other reports."""
    for design, protocol, local_epsilon in _SHUFFLER_MADE:
        other = _other_design(
            subject, shuffler=_GEOMETRIC, protocol=protocol, local_epsilon=local_epsilon
        )
        [row] = run_n_minus_one(other, rng)
        row = replace(
            row,
            subject=design,
            title="The shuffler subtracts its own dummies",
            sentence="A shuffler that made the dummies subtracts them from the published "
            "counts; only the victim's own noise, if there is any, still protects them.",
            advice="",
        )
        yield _require_epsilon(row, local_epsilon)


def _other_design(subject: AuditSubject, **fields: Any) -> AuditSubject:  # noqa: ANN401  # fields of a draft
    task = sample_task(domain_size=_ITEMS, **fields)
    return replace(subject, task=task, n_users=_USERS)


def _require_epsilon(row: Finding, epsilon: float) -> Finding:
    """Fail an attack unless it gained nearly its claim, and 90 % of `epsilon` or of the ceiling."""
    most = min(epsilon, row.ceiling or 0.0)
    gained = (row.empirical_epsilon_lower or 0.0) >= _REQUIRED_SHARE * most
    return row if row.verdict in {"tight", "unprotected"} and gained else not_reached(row)


def _log_odds(
    mechanism: StringHashing, ports: Ports, item: int, batches: int, rng: Generator
) -> Vector:
    """Draw batches of printed OD-HP whose first user holds an item; return log odds of x and x'."""
    held = np.full((batches, _PRINTED_USERS), _Z, dtype=np.int64)
    held[:, 0] = item
    true = ports.randomize(mechanism, held.ravel(), rng)
    dummies = mechanism.dummies(held.size * _DUMMIES, rng)
    dummies["seed"] = np.repeat(true["seed"], _DUMMIES)
    messages = np.concatenate([true, dummies])
    _, first, group = np.unique(messages["seed"], return_index=True, return_inverse=True)
    users: NDArray[np.int64] = np.arange(held.size)
    batch = np.concatenate([users, np.repeat(users, _DUMMIES)])[first] // _PRINTED_USERS
    x, other, z = (
        np.bincount(group, weights=whole_batch.weights(mechanism, messages, value))
        for value in (_X, _OTHER_X, _Z)
    )
    odds = [np.bincount(batch, weights=likelihoods / z) for likelihoods in (x, other)]
    return np.asarray(np.log(odds[0]) - np.log(odds[1]))


def run_printed(subject: AuditSubject, rng: Generator) -> Rows:
    """
    Refute the printed theorem of OD-HP, whose dummies reuse the seed of their user's report.

    The analyzer can then group each user's messages by seed. Overwriting the seeds of the deployed
    code's dummies gives the printed algorithm. In the game that refutes Theorem 1 [CC24], all users
    but the victim hold one value z, and each group's likelihoods are divided by those of z. The
    audited task does not matter.
    """
    printed_weights = ResponseWeights.for_epsilon(_LOCAL_EPSILON)
    mechanism = StringHashing(_PRINTED_ITEMS, _BUCKETS, printed_weights, bytes(32))
    population = AnonymitySet(users=_PRINTED_USERS, dummies=_PRINTED_USERS * _DUMMIES)
    claim = od_hp_theorem_1(
        BoundSetting(reduction=mechanism.reduction, anonymity_set=population, delta=_DELTA)
    )
    trials = max(_MIN_TRIALS, subject.sizes.batches // _MESSAGES_PER_TRIAL)
    together = max(1, _MESSAGES_TOGETHER // (_PRINTED_USERS * (1 + _DUMMIES)))
    parts = [min(together, trials - start) for start in range(0, trials, together)]

    first, second = (
        np.concatenate([_log_odds(mechanism, subject.ports, item, n, rng) for n in parts])
        for item in (_X, _OTHER_X)
    )
    result = run_game(first, second, delta=_DELTA)
    claimed = Guarantee(
        coalition="analyzer",
        epsilon=claim,
        delta=_DELTA,
        neighbouring=REPLACE_ONE,
        theorem="OD-HP, Theorem 1, as printed: dummies reuse their user's seed [CC24]",
        assumptions=(HONEST_SHUFFLER, "all users randomize and add dummies as printed"),
    )
    row = game_row(
        claimed=claimed,
        result=result,
        statistic="likelihood ratio of messages grouped by their seed",
        subject="OD-HP as printed",
        title=f"Dummies reuse their user's seed, {_PRINTED_USERS} users",
        sentence="",
    )
    if row.verdict != "contradicted":
        yield replace(not_reached(row), verdict="not refuted")
        return
    yield replace(
        row,
        verdict="refuted",
        sentence="The printed algorithm lets the analyzer group each user's messages by their "
        "seed, which its theorem does not take into account.",
        advice="Nothing to change here: every dummy of this project has a fresh seed. Do not "
        "deploy the algorithm as it is printed.",
    )
