"""
The distinguishing game: which of two values does the victim hold?

The adversary's view is drawn many times in each of two worlds that differ in the victim's value,
and reduced to a score, which is higher the likelier the first value is. A quarter of the draws
chooses a threshold, and the rest measures it. An adversary that guesses "the first" at or above the
threshold is right with probability t under the first value and wrong with probability f under the
second. (ε, δ) allows t ≤ e^ε·f + δ, so ε is at least ln((t - δ) / f), and bounds on t and f give a
bound on ε [JE19]. Guesses of "the second" below a threshold are bounded likewise.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from common.messages.guarantee import Guarantee, rounded_down
from deploy.audit.finding import Finding, Verdict
from deploy.audit.statistics import (
    CONFIDENCE,
    TEST_LEVEL,
    ceiling,
    probability_lower,
    probability_upper,
)

Scores = NDArray[np.float64]

_CHOOSING: Final = 0.25
"""Share of the draws that chooses the threshold."""
_THRESHOLDS: Final = 400
_ROC_POINTS: Final = 60
_DIGITS: Final = 9
"""Decimal places to which scores are rounded."""
_NEARLY_ALL: Final = 0.9
"""Share of a claim at which an attack counts as having reached it."""
_SURELY: Final = 0.75
"""Share of its claim that a successful attack shows in enough trials; the expected share is ten
standard deviations higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameResult:
    """The result of one game; a Finding has the same fields."""

    empirical_epsilon_lower: float
    """Lower bound of ε at δ; wrong with probability at most TEST_LEVEL."""
    ceiling: float
    advantage: float
    trials: int
    """Draws in each world."""
    roc: tuple[tuple[float, float], ...]


def run_game(first: Scores, second: Scores, *, delta: float = 0.0) -> GameResult:
    """
    Compute a lower bound of ε at δ from an attack's scores under each value, shape (trials,).

    Cost: a sort of the scores.
    """
    # Rounding removes the last digits of sums, which depend on the order of the terms.
    first, second = np.round(first, _DIGITS), np.round(second, _DIGITS)
    cut = int(_CHOOSING * len(first))
    thresholds, trials = _thresholds(first[:cut], second[:cut]), len(first) - cut
    chosen = _counts(first[:cut], second[:cut], thresholds) / max(1, cut)
    measured = _counts(first[cut:], second[cut:], thresholds)
    best = int(np.argmax(_bounds(chosen * trials, trials, delta)))
    fair = int(np.argmax(chosen[0] - chosen[1]))
    hits, misses = map(int, measured[:, best])
    surely = probability_lower(hits, trials, TEST_LEVEL / 2) - delta
    at_most = probability_upper(misses, trials, TEST_LEVEL / 2)
    true, false = measured / trials
    return GameResult(
        empirical_epsilon_lower=max(0.0, math.log(surely / at_most)) if surely > 0 else 0.0,
        ceiling=ceiling(trials, delta),
        advantage=float(true[fair] - false[fair]),
        trials=trials,
        roc=_roc(true[: len(thresholds)], false[: len(thresholds)]),
    )


def _counts(first: Scores, second: Scores, thresholds: Scores) -> Scores:
    """Count hits and false guesses of "the first" at each threshold, then of "the second"."""
    from_first, from_second = (
        len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
        for scores in (first, second)
    )
    hits = np.concatenate([from_first, len(second) - from_second])
    misses = np.concatenate([from_second, len(first) - from_first])
    return np.stack([hits, misses]).astype(np.float64)


def _bounds(expected: Scores, trials: int, delta: float) -> Scores:
    """Return the bound at each threshold, given the expected hits and misses."""
    (hits, misses), level = expected, TEST_LEVEL / 2
    surely = stats.beta.ppf(level, np.maximum(hits, 1e-9), trials - hits + 1) - delta
    at_most = stats.beta.ppf(1 - level, misses + 1, np.maximum(trials - misses, 1e-9))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(np.maximum(surely, 1e-300) / at_most))


def _roc(true: Scores, false: Scores) -> tuple[tuple[float, float], ...]:
    """Return a few points of the ROC curve for "the first", from (0, 0) to (1, 1)."""
    order = np.lexsort((true, false))
    places = np.linspace(0, len(order) - 1, min(len(order), _ROC_POINTS))
    kept = order[np.unique(places.astype(int))]
    points = zip(false[kept].tolist(), true[kept].tolist(), strict=True)
    return ((0.0, 0.0), *points, (1.0, 1.0))


def _thresholds(first: Scores, second: Scores) -> Scores:
    """Spread thresholds over the ranks of the scores, denser towards both ends."""
    scores = np.sort(np.concatenate([first, second]))
    last = len(scores) - 1
    growing = np.geomspace(1, last + 1, _THRESHOLDS // 4) - 1
    ranks = np.concatenate([np.linspace(0, last, _THRESHOLDS // 2), growing, last - growing])
    return np.unique(scores[np.clip(ranks, 0, last).astype(int)])


def game_row(
    *,
    claimed: Guarantee,
    exact: float | None,
    result: GameResult | None = None,
    must_reach: bool = False,
    **fields: Any,  # noqa: ANN401  # a Finding's
) -> Finding:
    """
    Make the finding of an attack: the claim beside its gain, computed, measured or both.

    `must_reach`: the attack is known to reach the claim with this number of trials; if it does not,
    the audit itself is wrong.
    """
    claim = reachable = claimed.epsilon
    gains = [] if exact is None else [exact]
    measured: dict[str, Any] = {
        "statistic": "no attack is computed: none is known for this noise, or it takes minutes"
        if exact is None
        else "computed from the exact distribution of the counts; too rare to be measured"
    }
    if result is not None:
        if math.isinf(claim):
            reachable, gains = result.ceiling, []
        gains.append(result.empirical_epsilon_lower)
        measured = dataclasses.asdict(result) | {"confidence": CONFIDENCE, "tests": 1}
    of_claim = {
        "coalition": claimed.coalition,
        "claim_epsilon": claim,
        "delta": claimed.delta,
        "theorem": claimed.theorem,
        "neighbouring": claimed.neighbouring,
        "assumptions": claimed.assumptions,
    }
    gained = max(gains, default=0.0)
    verdict: Verdict = "reached" if gained >= _NEARLY_ALL * reachable else "not contradicted"
    row = Finding(
        verdict="contradicted" if gained > claim else verdict,
        exact_epsilon=exact,
        **{"heading": "anonymity"} | of_claim | measured | fields,
    )
    shown = row.empirical_epsilon_lower or 0.0
    return not_reached(row) if must_reach and row.passed and shown < _SURELY * reachable else row


def not_reached(row: Finding) -> Finding:
    """Mark the finding of an attack that should have succeeded and did not."""
    shown = rounded_down(row.empirical_epsilon_lower or 0.0)
    return dataclasses.replace(
        row,
        verdict="not reached",
        sentence=f"An attack that is known to succeed reached only ε = {shown}.",
        advice="Do not rely on this audit.",
    )
