"""
The distinguishing game: which of two values does the victim hold?

In each of two worlds that differ in the victim's value the adversary's view is drawn many times and
made into one score, which is higher the more the view speaks for the first value. A quarter of the
draws chooses a threshold and the rest measures it. An adversary that guesses "the first" from the
threshold on is right with probability t under the first value and wrong with probability f under
the second. (ε, δ) allows t ≤ e^ε·f + δ, so ε is at least ln((t - δ) / f), and bounds on t and f
give a bound on ε [JE19]. Guesses of "the second" below a threshold are bounded likewise.
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
"""Share of a claim from which an attack has reached it."""
_SURELY: Final = 0.75
"""Share of a claim that an attack which is known to reach it always shows in enough trials: the
expected share lies ten standard deviations above."""
_MAX_STATED: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GameResult:
    """The result of one game."""

    epsilon_lower: float
    """Lower bound of ε at δ; wrong with probability TEST_LEVEL at most."""
    ceiling: float
    advantage: float
    trials: int
    """In each world."""
    roc: tuple[tuple[float, float], ...]


def run_game(first: Scores, second: Scores, *, delta: float = 0.0) -> GameResult:
    """
    Bound ε at δ from below by the scores of one attack.

    Args:
        first: Scores of views under the first value, shape (trials,); may be infinite.
        second: Under the second, shape (trials,).
        delta: At which ε is bounded; 0 for pure ε.

    Cost: a sort of the scores.
    """
    # The order of a sum's terms shows in its last digits, and would tell whose term came first.
    first, second = np.round(first, _DIGITS), np.round(second, _DIGITS)
    cut = int(_CHOOSING * len(first))
    chosen, trials = _Curve(first[:cut], second[:cut]), len(first) - cut
    measured = _Curve(first[cut:], second[cut:], thresholds=chosen.thresholds)
    best = int(np.argmax(chosen.bounds(delta, trials)))
    fair = int(np.argmax(chosen.true - chosen.false))
    hits, misses = measured.counts(best)
    return GameResult(
        epsilon_lower=_bound(hits, misses, trials, delta),
        ceiling=ceiling(trials, delta),
        advantage=float(measured.true[fair] - measured.false[fair]),
        trials=trials,
        roc=measured.roc(),
    )


def _bound(hits: int, misses: int, trials: int, delta: float) -> float:
    surely = probability_lower(hits, trials, TEST_LEVEL / 2) - delta
    at_most = probability_upper(misses, trials, TEST_LEVEL / 2)
    return max(0.0, math.log(surely / at_most)) if surely > 0 else 0.0


class _Curve:
    """Rates at every threshold: of guessing "the first" from it on, then "the second" below it."""

    def __init__(self, first: Scores, second: Scores, thresholds: Scores | None = None) -> None:
        self.thresholds = _thresholds(first, second) if thresholds is None else thresholds
        self._n = len(first)
        from_first, from_second = (
            len(scores) - np.searchsorted(np.sort(scores), self.thresholds, side="left")
            for scores in (first, second)
        )
        self._hits = np.concatenate([from_first, len(second) - from_second])
        self._misses = np.concatenate([from_second, len(first) - from_first])

    @property
    def true(self) -> Scores:
        """True positive rates."""
        return self._hits / self._n

    @property
    def false(self) -> Scores:
        """False positive rates."""
        return self._misses / self._n

    def counts(self, place: int) -> tuple[int, int]:
        """Return hits and misses at a threshold."""
        return int(self._hits[place]), int(self._misses[place])

    def bounds(self, delta: float, trials: int) -> Scores:
        """Return the bound of each threshold in so many trials, if these rates were exact."""
        hits, misses = self.true * trials, self.false * trials
        level = TEST_LEVEL / 2
        surely = stats.beta.ppf(level, np.maximum(hits, 1e-9), trials - hits + 1) - delta
        at_most = stats.beta.ppf(1 - level, misses + 1, np.maximum(trials - misses, 1e-9))
        with np.errstate(divide="ignore", invalid="ignore"):
            shown: Scores = np.log(np.maximum(surely, 1e-300) / at_most)
        return shown

    def roc(self) -> tuple[tuple[float, float], ...]:
        """Return a few points of the first direction, from (0, 0) to (1, 1)."""
        half = len(self.thresholds)
        order = np.lexsort((self.true[:half], self.false[:half]))
        kept = order[np.unique(np.linspace(0, half - 1, min(half, _ROC_POINTS)).astype(int))]
        points = zip(self.false[kept].tolist(), self.true[kept].tolist(), strict=True)
        return ((0.0, 0.0), *points, (1.0, 1.0))


def _thresholds(first: Scores, second: Scores) -> Scores:
    """Spread thresholds over the scores, by rank: evenly, and more of them towards both ends."""
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
    Make the finding of an attack: the claim beside the gain.

    Args:
        claimed: The claim; of an infinite ε where nothing is claimed.
        exact: The attack's computed gain; None where none is computed.
        result: The attack's measured gain; None where it is computed only.
        must_reach: The attack is known to reach the claim in so many trials: if it does not, the
            audit itself is wrong.
        **fields: Other fields of the finding.
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
        gains.append(result.epsilon_lower)
        measured = {
            "empirical_epsilon_lower": result.epsilon_lower,
            "ceiling": result.ceiling,
            "confidence": CONFIDENCE,
            "trials": result.trials,
            "advantage": result.advantage,
            "roc": result.roc,
            "tests": 1,
        }
    of_claim = {
        "coalition": claimed.coalition,
        "claim_epsilon": claim,
        "delta": claimed.delta,
        "theorem": claimed.theorem,
        "neighbouring": claimed.neighbouring,
        "assumptions": claimed.assumptions,
    }
    row = Finding(
        verdict=_verdict(claim, reachable, max(gains, default=0.0)),
        exact_epsilon=exact,
        **{"heading": "anonymity"} | of_claim | measured | fields,
    )
    shown = row.empirical_epsilon_lower or 0.0
    return not_reached(row) if must_reach and row.passed and shown < _SURELY * reachable else row


def _verdict(claim: float, reachable: float, shown: float) -> Verdict:
    """Return the verdict on a claim; `reachable` is finite where the claim is infinite."""
    if shown > claim:
        return "contradicted"
    return "reached" if shown >= _NEARLY_ALL * reachable else "not contradicted"


def understated(claimed: Guarantee) -> Guarantee:
    """Return a claim of a quarter of its ε, 5 at most: false wherever the claim is reached."""
    return dataclasses.replace(claimed, epsilon=min(claimed.epsilon, _MAX_STATED) / 4)


def not_reached(row: Finding) -> Finding:
    """Return the finding with the verdict that a known attack did not succeed."""
    shown = rounded_down(row.empirical_epsilon_lower or 0.0)
    return dataclasses.replace(
        row,
        verdict="not reached",
        sentence=f"Not so: an attack that is known to succeed got no more than ε = {shown}.",
        advice="Believe no figure of this audit.",
    )
