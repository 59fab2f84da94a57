"""Rows of games: what was claimed beside what an attack got."""

import dataclasses
import math
from typing import Any, Final

from common.messages.guarantee import Guarantee, rounded_down
from deploy.audit.finding import Finding, Verdict
from deploy.audit.game import Played
from deploy.audit.significance import CONFIDENCE

_NEARLY_ALL: Final = 0.9
"""Share of a claim from which an attack has reached it."""
_SURELY: Final = 0.75
"""Share of a claim that an attack which is known to reach it shows in any run that is long enough
to be asked for it: what is seen in such a run lies ten standard deviations above."""


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
    must_reach: bool = False,
    **fields: Any,  # noqa: ANN401  # a Finding's
) -> Finding:
    """
    Make the row of a game that was played.

    Args:
        played: What the attack got.
        claimed: What is claimed of it; of an infinite ε where nothing is.
        exact: What the attack should get, computed; None where that cannot be computed.
        must_reach: The attack is known to get what is claimed, and was played long enough to show
            it: if it does not, it is the audit that is wrong.
        **fields: The finding's others.
    """
    claim = claimed.epsilon
    reachable = played.ceiling if math.isinf(claim) else claim
    shown = played.epsilon_lower
    if exact is not None and not math.isinf(claim):
        shown = max(shown, exact)
    row = Finding(
        verdict=verdict(claim, reachable, shown),
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
    failed = must_reach and row.passed and played.epsilon_lower < _SURELY * reachable
    return not_reached(row) if failed else row


def not_reached(row: Finding) -> Finding:
    """Say of a game's row that its attack is known to succeed, and did not."""
    shown = rounded_down(row.empirical_epsilon_lower or 0.0)
    return dataclasses.replace(
        row,
        verdict="not reached",
        sentence=f"Not so: an attack that is known to succeed got no more than ε = {shown}.",
        advice="Believe no figure of this audit.",
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
        "no attack is computed: none is known on this law of noise, none proves anything, or it "
        "takes minutes"
        if exact is None
        else "computed from the exact law of the counts; to measure it would take more trials than "
        "there is time for"
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
