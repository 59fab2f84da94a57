"""The same people asked again and again, each time with a task of its own."""

import dataclasses
import math
from typing import Final

import numpy as np
from scipy import fft

from common.accounting.anonymity_set import Crowd
from common.accounting.guarantees import Terms, analyzer_guarantee, local_guarantee
from common.accounting.releases import CrowdRelease
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.messages.guarantee import rounded_up
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game import play
from deploy.audit.game_rows import computed_row, game_row
from deploy.audit.privacy.crowd_game import STATISTIC, play_crowd
from deploy.audit.privacy.messages import own_reports, scores

_POOLED_ROUNDS: Final = 2
_ROUNDS: Final = (2, 10, 30)
_FEW: Final = 10
"""Honest users among whom rounds are played against the analyzer."""
_DEVIATIONS: Final = 40.0
_ROUNDING: Final = 1e-13
"""What a Fourier transform leaves of a probability: nothing below this."""
_CLOSE: Final = 1e-3
_ADVICE: Final = (
    "Name the population in the task and give it a budget: the analyzer then refuses the round "
    "that would spend more. Ask as seldom as you can."
)


def play_rounds(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Play two rounds against shuffler and analyzer together, and compute more for the analyzer."""
    rows = [_pooled(audited, rng)]
    if audited.terms.reduction is not None and audited.task.shuffler.idle:
        rows.extend(_against_analyzer(audited, rounds) for rounds in _ROUNDS)
        rows.append(_among_few(audited, rng))
    return Outcome(findings=tuple(rows))


def _pooled(audited: Audited, rng: np.random.Generator) -> Finding:
    """Add up the evidence of two reports of one person, each recognised."""
    task, mechanism = audited.task, audited.mechanism
    items = (0, task.domain_size - 1)
    worlds = [
        sum(
            scores(mechanism, own_reports(mechanism, item, audited.effort.games, rng), items)
            for _ in range(_POOLED_ROUNDS)
        )
        for item in items
    ]
    return game_row(
        play(np.asarray(worlds[0]), np.asarray(worlds[1])),
        claimed=local_guarantee(
            "shuffler+analyzer", dataclasses.replace(audited.terms, rounds=_POOLED_ROUNDS)
        ),
        exact=_POOLED_ROUNDS * mechanism.local_epsilon,
        scenario="rounds",
        aside=True,
        title=f"{_POOLED_ROUNDS} rounds, your reports recognised",
        heading="anonymity",
        statistic=f"sum of the log likelihood ratios of {_POOLED_ROUNDS} reports",
        sentence=f"Whoever can link your reports learns from {_POOLED_ROUNDS} rounds twice what "
        "one gives away.",
        advice=_ADVICE,
    )


def _against_analyzer(audited: Audited, rounds: int) -> Finding:
    terms, n_users = dataclasses.replace(audited.terms, rounds=rounds), audited.n_users
    claimed = analyzer_guarantee(terms, n_users, honest=n_users)
    attack = _attack(terms, terms.crowd_of(n_users, n_users, n_users, 0))
    return computed_row(
        claimed=claimed,
        exact=attack,
        scenario="rounds",
        aside=True,
        title=f"{rounds} rounds of the same {n_users:,} users",
        heading="anonymity",
        sentence=f"After {rounds} such rounds the analyzer alone has learned what "
        f"ε = {rounded_up(claimed.epsilon)} allows, at most.",
        advice=_ADVICE,
    )


def _attack(terms: Terms, crowd: Crowd) -> float | None:
    """Compute what one statistic of all rounds proves; None where its law is not known."""
    release = terms.release(crowd)
    if not isinstance(release, CrowdRelease) or release.crowd.random_dummies is not None:
        return None
    if release.reduction.third_value == "none":
        return None
    return epsilon_of_rounds(release.reduction, release.crowd, terms.rounds, terms.delta)


def _among_few(audited: Audited, rng: np.random.Generator) -> Finding:
    """Play two rounds among so few honest users that it can be measured."""
    terms = dataclasses.replace(audited.terms, rounds=_POOLED_ROUNDS)
    honest = min(_FEW, audited.n_users)
    return game_row(
        play_crowd(audited, honest, honest, rng, rounds=_POOLED_ROUNDS),
        claimed=analyzer_guarantee(terms, audited.n_users, honest=honest),
        exact=_attack(terms, terms.crowd_of(audited.n_users, honest, honest, 0)),
        scenario="rounds",
        aside=True,
        title=f"{_POOLED_ROUNDS} rounds, {honest} of {audited.n_users:,} users honest",
        heading="anonymity",
        statistic=f"{STATISTIC}, over {_POOLED_ROUNDS} rounds",
        sentence=f"With {honest} honest users left an attack on {_POOLED_ROUNDS} rounds gets no "
        "more than is computed for so few.",
        advice=_ADVICE,
    )


def epsilon_of_rounds(
    reduction: MatchCountReduction, crowd: Crowd, rounds: int, delta: float
) -> float:
    """
    Give an ε that one statistic of several rounds proves: no (ε', δ) holds with a lesser ε'.

    All others hold a third value, and what supports it is dropped. Over all rounds the analyzer
    counts the messages that support x, and takes off those that support x'. Each of the others'
    blanket reports, and each dummy, supports x alone or x' alone with the same chance; the victim's
    does so in each round with its own: a sum of independent numbers in -1, 0, 1, whose law is one
    Fourier transform.

    Raises:
        ValueError: The mechanism has no third value.
    """
    if reduction.third_value == "none":
        raise ValueError("the others hold a third value, of which this mechanism has none")
    l, collision = reduction.answers, reduction.collision  # noqa: E741  # as in the formula
    apart = (1 - collision) / l
    independent = reduction.third_value == "independent"
    kept = 1 - 1 / l if independent else 1.0
    p, q = reduction.blanket / l + reduction.signal, reduction.blanket / l
    plus = kept * p * (1 - collision) if independent else p
    minus = kept * (1 - p) / l if independent else q
    variance = 2 * rounds * (crowd.others * reduction.blanket + crowd.dummies) * kept * apart
    reach = int(_DEVIATIONS * math.sqrt(variance) + 2 * rounds + _DEVIATIONS)
    size = fft.next_fast_len(2 * reach + 1)
    angle = 2 * np.pi * np.arange(size) / size
    turn = 1 - np.cos(angle)
    noise = _less_to_the(2 * reduction.blanket * kept * apart * turn, rounds * crowd.others)
    noise *= _less_to_the(2 * kept * apart * turn, rounds * crowd.dummies)
    own = 1 - plus - minus + plus * np.exp(-1j * angle) + minus * np.exp(1j * angle)
    one: Vector = np.maximum(np.fft.ifft(noise * own**rounds).real, 0.0)
    other = np.roll(one[::-1], 1)  # x' for x: the difference has the other sign
    trusted = (one > _ROUNDING) & (other > _ROUNDING)

    def proven(epsilon: float) -> float:
        return float(np.maximum(one - math.exp(epsilon) * other, 0.0)[trusted].sum())

    low, high = 0.0, min(rounds * reduction.local_epsilon, -math.log(_ROUNDING))
    if proven(low) <= delta:
        return 0.0
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if proven(middle) > delta else (low, middle)
    return low


def _less_to_the(less: Vector, number: int) -> Vector:
    """Give (1 - less)^number of each; from its logarithm where that keeps digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.exp(number * np.log1p(-np.minimum(less, 0.5)))
    powers: Vector = np.where(less < 0.5, small, (1 - less) ** number)  # noqa: PLR2004  # either is exact there
    return powers
