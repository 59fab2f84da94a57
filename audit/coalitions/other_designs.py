"""Designs that an attack must break: pureDUMP, shuffler-made dummies, and OD-HP as printed."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from audit.coalitions.messages import weights
from audit.coalitions.single_user import run_n_minus_one, run_pooled
from audit.finding import Finding, Rows
from audit.game import game_row, not_reached, run_game
from audit.harness.tasks import sample_task
from audit.scenario import AuditSubject, Ports
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.assumptions import HONEST_SHUFFLER
from common.accounting.published import BoundSetting, od_hp_theorem_1
from common.mechanisms.base import Vector
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.weights import ResponseWeights
from common.messages.guarantee import REPLACE_ONE, Guarantee
from common.task.shuffler_spec import RATIO_SUM, GeometricNoise, ShufflerSpec

_ITEMS: Final = 26
_USERS: Final = 10_000
_GEOMETRIC: Final = ShufflerSpec(
    noise=GeometricNoise(peak=20, left_weight=RATIO_SUM // 2, right_weight=RATIO_SUM // 2, most=60)
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
_MAX_MESSAGES: Final = 10**6


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
            subject,
            shuffler=_GEOMETRIC,
            protocol=protocol,
            local_epsilon=local_epsilon,
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
        np.bincount(group, weights=weights(mechanism, messages, value))
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
    together = max(1, _MAX_MESSAGES // (_PRINTED_USERS * (1 + _DUMMIES)))
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
