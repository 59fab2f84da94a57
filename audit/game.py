"""
The distinguishing game: which of two values does the victim hold?

The adversary's view is drawn many times under each value and reduced to a score: the higher the
score, the likelier the first value. A quarter of the draws serves to choose a threshold, the rest
to measure it. Guessing "the first" at or above the threshold is right with probability t under the
first value and wrong with probability f under the second. (ε, δ) allows t ≤ e^ε·f + δ, so ε is at
least ln((t - δ) / f), and bounds on t and f bound ε [JE19]; likewise for "the second" below it.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.finding import Finding, Verdict
from audit.statistics import CONFIDENCE, ceiling, delta_bounds, epsilon_bounds
from common.messages.guarantee import Guarantee, rounded_down

Scores = NDArray[np.float64]

_THRESHOLD_SHARE: Final = 0.25
_THRESHOLDS: Final = 400
_DIGITS: Final = 9
_TIGHT_SHARE: Final = 0.9
"""Share of a claim, or of the ceiling if nothing is claimed, that a strong attack gains."""
_REQUIRED_SHARE: Final = 0.75
"""Share of its ε that a known attack must show: ten standard deviations below the expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameResult:
    """The result of one game; a Finding has the same fields."""

    empirical_epsilon_lower: float
    """Lower bound on ε at δ; wrong with probability at most TEST_LEVEL."""
    ceiling: float
    advantage: float
    trials: int
    """Draws under each value."""
    statistic: str = ""
    empirical_delta_lower: float | None = None
    """Lower bound on δ at the ε of a claim, likewise; None unless asked for."""


def run_game(
    first: Scores,
    second: Scores,
    *,
    delta: float = 0,
    statistic: str = "",
    at_epsilon: float | None = None,
) -> GameResult:
    """
    Compute a lower bound on ε at δ from an attack's scores under each value, shape (trials,).

    With `at_epsilon`, a second test also bounds δ there.
    """
    # Rounding removes the last digits of sums, which depend on the order of the terms.
    first, second = np.round(first, _DIGITS), np.round(second, _DIGITS)
    cut = int(_THRESHOLD_SHARE * len(first))
    thresholds, trials = _thresholds(first[:cut], second[:cut]), len(first) - cut
    chosen = _counts(first[:cut], second[:cut], thresholds) / max(1, cut)
    measured = _counts(first[cut:], second[cut:], thresholds)
    best = int(np.argmax(epsilon_bounds(chosen * trials, trials, delta)))
    balanced = int(np.argmax(chosen[0] - chosen[1]))
    true, false = measured / trials
    delta_lower = None
    if at_epsilon is not None:
        likely = int(np.argmax(delta_bounds(chosen * trials, trials, at_epsilon)))
        delta_lower = max(0.0, float(delta_bounds(measured[:, likely], trials, at_epsilon)))
    return GameResult(
        empirical_epsilon_lower=max(0.0, float(epsilon_bounds(measured[:, best], trials, delta))),
        ceiling=ceiling(trials, delta),
        advantage=float(true[balanced] - false[balanced]),
        trials=trials,
        statistic=statistic,
        empirical_delta_lower=delta_lower,
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
    exact: float | None = None,
    result: GameResult | None = None,
    required_epsilon: float = 0.0,
    **fields: Any,  # noqa: ANN401  # fields of a Finding
) -> Finding:
    """
    Create an attack's finding: the claim, and the attack's computed and measured gain, if any.

    If the game shows less than three quarters of `required_epsilon`, which the attack is known to
    reach if the ceiling allows it, the audit is broken: "not reached".
    """
    claim = reachable = claimed.epsilon
    gains = [] if exact is None else [exact]
    measured: dict[str, Any] = {
        "statistic": "no attack computed: none is known for this noise, or it takes minutes"
        if exact is None
        else "computed from the exact distribution of the counts; it succeeds too rarely to measure"
    }
    if result is not None:
        if math.isinf(claim):
            reachable, gains = result.ceiling, []
        gains.append(result.empirical_epsilon_lower)
        tests = 1 + (result.empirical_delta_lower is not None)
        measured = asdict(result) | {"confidence": CONFIDENCE, "tests": tests}
    of_claim = asdict(claimed)
    of_claim["claim_epsilon"] = of_claim.pop("epsilon")
    gained = max(gains, default=0.0)
    verdict: Verdict = "not contradicted" if gains else "not attacked"
    if gains and gained >= _TIGHT_SHARE * reachable:
        verdict = "unprotected" if math.isinf(claim) else "tight"
    row = Finding(verdict=verdict, exact_epsilon=exact, **of_claim | measured | fields)
    found = row.empirical_delta_lower or 0.0
    if gained > claim or found > claimed.delta:
        return replace(
            row,
            verdict="contradicted",
            sentence=f"The attack gains ε = {gained:.6g}, more than the claimed {claim:.6g}."
            if gained > claim
            else f"The attack gains δ = {found:.6g} at the claimed ε, not {claimed.delta:.6g}.",
            advice="Do not rely on this claim: find the error first.",
        )
    required = _REQUIRED_SHARE * min(required_epsilon, row.ceiling or 0.0)
    return not_reached(row) if (row.empirical_epsilon_lower or 0.0) < required else row


def not_reached(row: Finding) -> Finding:
    """Mark the finding of an attack that should have succeeded and did not."""
    shown = rounded_down(row.empirical_epsilon_lower or 0.0)
    return replace(
        row,
        verdict="not reached",
        sentence=f"An attack that is known to succeed reached only ε = {shown}.",
        advice="Do not rely on this audit.",
    )
