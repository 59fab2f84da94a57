"""Rows of games: what was claimed beside what an attack got."""

import math
from typing import Any, Final

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
    claim: float,
    exact: float | None,
    **fields: Any,  # noqa: ANN401  # a Finding's
) -> Finding:
    """
    Make the row of a game that was played.

    Args:
        played: What the attack got.
        claim: What is claimed of it; infinite where nothing is.
        exact: What the attack should get, computed; None where that cannot be computed.
        **fields: The finding's others.
    """
    reachable = played.ceiling if math.isinf(claim) else claim
    too_much = exact is not None and exact > claim
    return Finding(
        verdict="contradicted" if too_much else verdict(claim, reachable, played.epsilon_lower),
        claim_epsilon=claim,
        exact_epsilon=exact,
        empirical_epsilon_lower=played.epsilon_lower,
        ceiling=played.ceiling,
        confidence=CONFIDENCE,
        trials=played.trials,
        advantage=played.advantage,
        tests=1,
        roc=played.roc,
        **fields,
    )


def computed_row(*, claim: float, exact: float | None, **fields: Any) -> Finding:  # noqa: ANN401  # a Finding's
    """
    Make the row of an attack that is computed from its exact law, and not measured.

    Args:
        claim: What is claimed.
        exact: A lower bound of ε that the attack proves; None where its law is not known here.
        **fields: The finding's others.
    """
    known = exact is not None
    return Finding(
        verdict=verdict(claim, claim, exact) if exact is not None else "not contradicted",
        claim_epsilon=claim,
        exact_epsilon=exact,
        statistic="computed from the exact law of the counts; no number of trials would show it"
        if known
        else "no attack on this law of noise is computed",
        **fields,
    )
