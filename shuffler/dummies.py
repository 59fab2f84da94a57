"""
What a protocol lets the shuffler do besides permuting: drop reports at random, and add dummies.

Drawn once, after the batch has closed. Every draw is exact: fair bits, and bounded integers that
numpy draws by rejection; a floating-point table of the law would cut its tail, and the tail is the
δ that the guarantee speaks of [MSE25]. The dummies are sealed to the analyzer as users' reports
are, so that nothing but the count of its item tells that a dummy is there.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.task.shuffler_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec

_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 2**22


def draw_kept(spec: ShufflerSpec, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """
    Draw which reports are kept: each one apart, with probability keep_weight / KEEP_SUM.

    Where every report is kept nothing is drawn.
    """
    if spec.keep_weight == KEEP_SUM:
        return np.ones(n_reports, dtype=np.bool_)
    return rng.integers(0, KEEP_SUM, size=n_reports, dtype=np.int64) < spec.keep_weight


def draw_item_dummies(
    spec: ShufflerSpec, domain_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw how many dummies each item gets, every item apart.

    Args:
        spec: The law.
        domain_size: Number of items.
        rng: Where bits and integers come from.

    Returns:
        Numbers, shape (domain_size,), each 0 .. spec.most.

    Cost: `trials` bits an item; or some 1/(1-l) + 1/(1-r) integers, times what its flanks are cut
    by: 1/(1-l^peak) for the left one.
    """
    if spec.law == "binomial":
        return _heads(spec.trials, domain_size, rng)
    if spec.law == "geometric":
        return _flanked(spec, domain_size, rng)
    return np.zeros(domain_size, dtype=np.int64)


def _heads(coins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Count heads among fair coins, `count` times: bits of uniform words."""
    whole, rest = divmod(coins, _WORD_BITS)
    words = whole + (rest > 0)
    together = max(1, _WORDS_AT_ONCE // words)
    heads = np.empty(count, dtype=np.int64)
    for start in range(0, count, together):
        part = heads[start : start + together]
        bits = rng.integers(0, 2**_WORD_BITS, size=(len(part), words), dtype=np.uint64)
        if rest:
            bits[:, -1] &= np.uint64(2**rest - 1)
        part[:] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return heads


def _flanked(spec: ShufflerSpec, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Draw from two geometric flanks by rejection.

    A fair coin proposes a flank, geometric numbers a place on it: (1-r)·r^j from the peak on, and
    (1-l)·l^(j-1) at j ≥ 1 below it. Kept in the proportion (1-l) : l·(1-r), a proposal is r^j or
    l^j but for one factor; what falls below 0 or above `most` is proposed again.
    """
    left, right = spec.left_weight, spec.right_weight
    chances = np.array([left * (RATIO_SUM - right), RATIO_SUM * (RATIO_SUM - left)])
    if spec.peak == 0:
        chances[0] = 0  # there is no left flank, and the right one is kept as it comes
    drawn = np.full(count, -1, dtype=np.int64)
    while (open_ := np.flatnonzero(drawn < 0)).size:
        above = rng.integers(0 if spec.peak else 1, 2, size=len(open_), dtype=np.int64)
        accepted = rng.integers(0, chances.max(), size=len(open_), dtype=np.int64) < chances[above]
        steps = np.empty(len(open_), dtype=np.int64)
        for side, weight in ((0, left), (1, right)):
            chosen = above == side
            steps[chosen] = _geometric(weight, int(chosen.sum()), rng)
        places = np.where(above == 1, spec.peak + steps, spec.peak - 1 - steps)
        fits = accepted & (places >= 0) & (places <= spec.most)
        drawn[open_[fits]] = places[fits]
    return drawn


def _geometric(weight: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw P(j) = (1-x)·x^j, x = weight / RATIO_SUM: go on while a chance comes true."""
    steps = np.zeros(count, dtype=np.int64)
    going = np.arange(count)
    while going.size:
        going = going[rng.integers(0, RATIO_SUM, size=len(going), dtype=np.int64) < weight]
        steps[going] += 1
    return steps
