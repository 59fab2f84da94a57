"""The distinguishing game where ε is known. Seeds are fixed; a bound errs with TEST_LEVEL."""

import dataclasses
import math

import numpy as np
import pytest

from shuffledp.audit.finding import GameResult, game_row, run_game
from tests.support.audit_reports import demo_report

_TRIALS = 400_000


def _responses(epsilon: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw randomized responses for a bit that is 1, and for one that is 0."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    return (rng.random(_TRIALS) < p).astype(float), (rng.random(_TRIALS) >= p).astype(float)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_the_bound_for_randomized_response_is_close_and_never_too_high(
    epsilon: float, delta: float
) -> None:
    """The smallest ε at δ of a bit that is reported with probability p: ln((p - δ) / (1 - p))."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    exact = math.log((p - delta) / (1 - p))

    result = run_game(*_responses(epsilon, np.random.default_rng(1)), delta=delta)

    assert 0.9 * exact < result.empirical_epsilon_lower <= exact
    assert result.advantage == pytest.approx(2 * p - 1, abs=0.01)


def test_scores_without_information_show_nothing() -> None:
    """Equal distributions under both values, or constant scores."""
    rng = np.random.default_rng(2)
    result = run_game(rng.normal(size=_TRIALS), rng.normal(size=_TRIALS))

    assert result.empirical_epsilon_lower < 0.05
    assert abs(result.advantage) < 0.01
    assert run_game(np.zeros(100), np.zeros(100)).empirical_epsilon_lower == 0


def test_bounds_are_rarely_above_the_true_epsilon() -> None:
    """In 100 small games of ε = 1, the draws that measure are not those that choose thresholds."""
    rng = np.random.default_rng(5)
    bounds = []
    for _ in range(100):
        first, second = (scores[:400] for scores in _responses(1.0, rng))
        bounds.append(run_game(first + rng.normal(size=400), second + rng.normal(size=400)))

    assert max(result.empirical_epsilon_lower for result in bounds) < 1


@pytest.mark.parametrize(("claim", "verdict"), [(1.0, "tight"), (math.inf, "unprotected")])
def test_only_a_finite_claim_is_tight(claim: float, verdict: str) -> None:
    """A gain of nearly the ceiling says little about an infinite claim."""
    claimed = dataclasses.replace(demo_report().guarantees[0], epsilon=claim)
    result = GameResult(empirical_epsilon_lower=0.95, ceiling=1.0, advantage=0.5, trials=9)

    assert verdict == game_row(claimed=claimed, result=result, sentence="It is so.").verdict
