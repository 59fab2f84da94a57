"""
PrivKVM: iterations of PrivKV, each with the previous iteration's means as fakes [YHMZ19].

Fakes equal to the true means would not bias the estimates. Each iteration is a separate task, in
which users draw a new key, and multiplies the bias by its share of fakes; all their ε add up.

The split of ε follows published programs, not the paper: the first iteration spends ε1 = κε on the
ownership of a key, and each of c iterations (1-κ)ε/c on the value. Later iterations toss a fair
coin for ownership, which costs no ε; only the first estimates frequencies. Half of their reports
carry a value; if a share f of users owns the key, a share 1-f of these values is fake.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Final

import numpy as np

from common.errors import TaskError
from common.mechanisms.base import Vector
from common.task.draft import PairDraft

MAX_ITERATIONS: Final = 1000
_MIN_EPSILON: Final = 2.0**-32
"""Minimum ε of one part of a report, as in `ResponseWeights`."""


def iteration(
    whole: PairDraft, local_epsilon: float, iterations: int, number: int, means: Vector | None
) -> tuple[float, PairDraft]:
    """
    Return the local ε and the draft of one iteration. Run by the operator.

    The exact sum of all iterations' local ε is at most local_epsilon.

    `whole` and `local_epsilon` describe all `iterations` together; the key_share is above 0 and
    below 1. `number` counts from 1. `means` are those of the previous iteration, in -1 .. 1; mapped
    to low .. high and clipped, they are the new fakes. None for the first iteration, which uses the
    fakes of `whole`. Raises TaskError if a parameter is out of range, or a part of ε is too small.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise TaskError(f"there are {iterations} iterations; there must be 1 to {MAX_ITERATIONS}")
    if not 0 < local_epsilon < math.inf:
        raise TaskError(f"local_epsilon is {local_epsilon}; it must be above 0 and finite")
    if not 0 < whole.key_share < 1:
        raise TaskError(f"key_share is {whole.key_share}; it must be above 0 and below 1")
    key = local_epsilon * whole.key_share
    value = (local_epsilon - key) / iterations
    if min(key, value) < _MIN_EPSILON:
        raise TaskError(
            f"local_epsilon is {local_epsilon}: with {iterations} iterations, the smallest part is "
            f"{min(key, value)}; it must be at least 2^-32, or reports carry no signal"
        )
    while Fraction(key) + iterations * Fraction(value) > Fraction(local_epsilon):
        value = math.nextafter(value, 0.0)
    key = key if number == 1 else 0.0
    total = key + value
    if Fraction(total) > Fraction(key) + Fraction(value):
        total = math.nextafter(total, 0.0)
    fakes = whole.fakes
    if means is not None:
        scaled = whole.low + (means + 1) / 2 * (whole.high - whole.low)
        fakes = tuple(np.clip(scaled, whole.low, whole.high).tolist())
    return total, dataclasses.replace(whole, key_share=key / total, fakes=fakes)
