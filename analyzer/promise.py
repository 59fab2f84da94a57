"""Whether a design keeps the wish, with the room that its task will claim on top. Pure."""

from typing import Final

from analyzer.wishes import Wishes
from common.accounting.coalitions import Terms, central_epsilon

MARGIN: Final = 0.99
"""Of the wished δ, so that what a task then claims, with its own room, is no more than the wish."""
CLAIM_ROOM: Final = 1.00015
"""By which a task's claim may lie above the ε that its noise is made for: it leaves a device room
to compute for itself, and is rounded up."""


def keeps_promise(terms: Terms, wishes: Wishes) -> bool:
    """
    Ask the exact accountant whether a task under these terms keeps the wish.

    Cost: an evaluation of δ, or a composition if there are several rounds.
    """
    crowd = terms.crowd(wishes.n_min)
    epsilon = wishes.central_epsilon / CLAIM_ROOM
    if wishes.rounds == 1:
        return terms.release(crowd).delta(epsilon) <= MARGIN * wishes.delta
    return central_epsilon(terms, crowd) <= epsilon
