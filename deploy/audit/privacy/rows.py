"""Rows of games: what was claimed beside what an attack got."""

import math
from typing import Any, Final

from common.guarantee import Guarantee
from deploy.audit.finding import Finding, Verdict
from deploy.audit.game import Played
from deploy.audit.significance import CONFIDENCE

_NEARLY_ALL: Final = 0.9
"""Share of a claim from which an attack has reached it."""


def verdict(claim: float, reachable: float, shown: float) -> Verdict:
    """
    Say what an attack showed of a claim.

    Args:
        claim: An upper bound of ε; may be infinite.
        reachable: What the claim is, or where it is infinite the most that could be shown.
        shown: A lower bound of ε, computed or measured.
    """
    if shown > claim:
        return "contradicted"
    return "reached" if shown >= _NEARLY_ALL * reachable else "not contradicted"


def game_row(
    played: Played,
    *,
    claimed: Guarantee,
    exact: float | None,
    **fields: Any,  # noqa: ANN401  # a Finding's
) -> Finding:
    """
    Make the row of a game that was played.

    Args:
        played: What the attack got.
        claimed: What is claimed of it; of an infinite ε where nothing is.
        exact: What the attack should get, computed; None where that cannot be computed.
        **fields: The finding's others.
    """
    claim = claimed.epsilon
    reachable = played.ceiling if math.isinf(claim) else claim
    too_much = exact is not None and exact > claim
    return Finding(
        verdict="contradicted" if too_much else verdict(claim, reachable, played.epsilon_lower),
        exact_epsilon=exact,
        empirical_epsilon_lower=played.epsilon_lower,
        ceiling=played.ceiling,
        confidence=CONFIDENCE,
        trials=played.trials,
        advantage=played.advantage,
        tests=1,
        roc=played.roc,
        **_of(claimed) | fields,
    )


def computed_row(*, claimed: Guarantee, exact: float | None, **fields: Any) -> Finding:  # noqa: ANN401  # a Finding's
    """
    Make the row of an attack that is computed from its exact law, and not measured.

    Args:
        claimed: What is claimed.
        exact: A lower bound of ε that the attack proves; None where its law is not known here.
        **fields: The finding's others.
    """
    claim = claimed.epsilon
    statistic = (
        "no attack on this law of noise is computed"
        if exact is None
        else "computed from the exact law of the counts; no number of trials would show it"
    )
    return Finding(
        verdict="not contradicted" if exact is None else verdict(claim, claim, exact),
        exact_epsilon=exact,
        **{"statistic": statistic} | _of(claimed) | fields,
    )


def _of(claimed: Guarantee) -> dict[str, Any]:
    """Give what a row says of its claim."""
    return {
        "coalition": claimed.coalition,
        "claim_epsilon": claimed.epsilon,
        "delta": claimed.delta,
        "theorem": claimed.theorem,
        "neighbouring": claimed.neighbouring,
        "assumptions": claimed.assumptions,
    }
