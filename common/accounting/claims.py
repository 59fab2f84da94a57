"""
What a task may claim against the analyzer at n_min, and whether it does so truly.

The analyzer states a claim with room to spare, so that a device which computes for itself, on
another machine and with other bins, always finds an honest claim true.
"""

from decimal import ROUND_CEILING, Context
from typing import Final

from common.accounting.guarantees import claimed_release
from common.task.task import MIN_DELTA, Task

_ROOM: Final = 1e-4
"""Relative; on top of ε."""
_DELTA_ROOM: Final = 5e-3
"""Relative: what `delta_upper` may lie above the formula itself."""
_STATED: Final = Context(prec=6, rounding=ROUND_CEILING)


def claimable_epsilon(task: Task) -> float:
    """
    Give the central ε that a task may claim: what holds at n_min, rounded up a little.

    Whatever the task claims now is not looked at. Never above its local ε.

    Cost: one search for ε, tenths of a second.
    """
    delta = max(MIN_DELTA, task.delta * (1 - _DELTA_ROOM))
    epsilon = claimed_release(task, task.n_min).epsilon(delta) * (1 + _ROOM)
    return min(float(_STATED.create_decimal_from_float(epsilon)), task.local_epsilon)


def delta_at_claim(task: Task) -> float:
    """
    Bound from above the δ at which a task's claimed central ε really holds at n_min.

    The claim is true if that is at most the task's own δ. That of a claim of the local ε is 0.

    Cost: one evaluation, tenths of a second.
    """
    return claimed_release(task, task.n_min).delta(task.central_epsilon)
