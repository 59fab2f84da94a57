"""Findings of games: the claim beside the gain of the attack."""

import dataclasses
import math
from typing import Any, Final

from common.messages.guarantee import Guarantee, rounded_down
from deploy.audit.finding import Finding, Verdict
from deploy.audit.game import GameResult
from deploy.audit.statistics import CONFIDENCE

_NEARLY_ALL: Final = 0.9
"""Share of a claim from which an attack has reached it."""
_SURELY: Final = 0.75
"""Share of a claim that an attack which is known to reach it always shows in enough trials: the
expected share lies ten standard deviations above."""
_MOST_STATED: Final = 20.0


def verdict(claim: float, reachable: float, shown: float) -> Verdict:
    """
    Return the verdict on a claim.

    Args:
        claim: An upper bound of ε; may be infinite.
        reachable: The claim, or the ceiling of the trials where the claim is infinite.
        shown: A lower bound of ε, computed or measured.
    """
    if shown > claim:
        return "contradicted"
    return "reached" if shown >= _NEARLY_ALL * reachable else "not contradicted"


def game_row(
    result: GameResult,
    *,
    claimed: Guarantee,
    exact: float | None,
    must_reach: bool = False,
    **fields: Any,  # noqa: ANN401  # a Finding's
) -> Finding:
    """
    Make the finding of a game.

    Args:
        result: The attack's measured gain.
        claimed: The claim; of an infinite ε where nothing is claimed.
        exact: The attack's computed gain; None where none is computed.
        must_reach: The attack is known to reach the claim in so many trials: if it does not, the
            audit itself is wrong.
        **fields: Other fields of the finding.
    """
    claim = claimed.epsilon
    reachable = result.ceiling if math.isinf(claim) else claim
    shown = result.epsilon_lower
    if exact is not None and not math.isinf(claim):
        shown = max(shown, exact)
    row = Finding(
        verdict=verdict(claim, reachable, shown),
        exact_epsilon=exact,
        empirical_epsilon_lower=result.epsilon_lower,
        ceiling=result.ceiling,
        confidence=CONFIDENCE,
        trials=result.trials,
        advantage=result.advantage,
        roc=result.roc,
        **{"tests": 1} | _of(claimed) | fields,
    )
    failed = must_reach and row.passed and result.epsilon_lower < _SURELY * reachable
    return not_reached(row) if failed else row


def understated(claimed: Guarantee) -> Guarantee:
    """Return a claim of a quarter of its ε, 5 at most: false wherever the claim is reached."""
    return dataclasses.replace(claimed, epsilon=min(claimed.epsilon, _MOST_STATED) / 4)


def not_reached(row: Finding) -> Finding:
    """Return the finding with the verdict that a known attack did not succeed."""
    shown = rounded_down(row.empirical_epsilon_lower or 0.0)
    return dataclasses.replace(
        row,
        verdict="not reached",
        sentence=f"Not so: an attack that is known to succeed got no more than ε = {shown}.",
        advice="Believe no figure of this audit.",
    )


def computed_row(*, claimed: Guarantee, exact: float | None, **fields: Any) -> Finding:  # noqa: ANN401  # a Finding's
    """
    Make the finding of an attack that is computed from its exact distribution, not measured.

    Args:
        claimed: The claim.
        exact: The attack's lower bound of ε; None where none is computed.
        **fields: Other fields of the finding.
    """
    claim = claimed.epsilon
    statistic = (
        "no attack is computed: none is known for this noise, or it takes minutes"
        if exact is None
        else "computed from the exact distribution of the counts; too rare to be measured"
    )
    return Finding(
        verdict="not contradicted" if exact is None else verdict(claim, claim, exact),
        exact_epsilon=exact,
        **{"statistic": statistic} | _of(claimed) | fields,
    )


def _of(claimed: Guarantee) -> dict[str, Any]:
    """Return the fields that describe the claim."""
    return {
        "coalition": claimed.coalition,
        "claim_epsilon": claimed.epsilon,
        "delta": claimed.delta,
        "theorem": claimed.theorem,
        "neighbouring": claimed.neighbouring,
        "assumptions": claimed.assumptions,
    }
