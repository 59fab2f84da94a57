"""
Draw which reports the shuffler drops and how many dummies it adds for each item.

Drawn once, after the batch has closed. Every draw is exact: fair bits, and bounded integers that
numpy draws by rejection. A floating-point table of the distribution would cut its tail, which is
the δ of the guarantee [MSE25]. The dummies are sealed to the analyzer as users' reports are, so
they cannot be told from reports of the same item.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.task.dummy_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec

_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 2**22


def draw_kept(spec: ShufflerSpec, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """
    Draw which reports are kept, each independently with probability keep_weight / KEEP_SUM.

    Nothing is drawn if every report is kept. Shape (n_reports,).
    """
    if spec.keep_weight == KEEP_SUM:
        return np.ones(n_reports, dtype=np.bool_)
    return rng.integers(0, KEEP_SUM, size=n_reports, dtype=np.int64) < spec.keep_weight


def draw_item_dummies(
    spec: ShufflerSpec, domain_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw the number of dummies of each item, independently.

    Args:
        spec: The distribution.
        domain_size: Number of items.
        rng: Source of bits and integers.

    Returns:
        Counts of shape (domain_size,), each in 0 .. spec.most.

    Cost: `trials` bits an item if binomial; if geometric, some 1/(1-l) + 1/(1-r) integers an item,
    more by a factor of 1/(1-l^peak) where the left flank is truncated.
    """
    if spec.law == "binomial":
        return _heads(spec.trials, domain_size, rng)
    if spec.law == "geometric":
        return _flanked(spec, domain_size, rng)
    return np.zeros(domain_size, dtype=np.int64)


def _heads(coins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` numbers of heads among fair coins, as the set bits of uniform words."""
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

    A fair coin proposes a flank, a geometric number the distance from the peak: (1-r)·r^j upwards,
    and (1-l)·l^(j-1) at j ≥ 1 downwards. Accepted in the proportion (1-l) : l·(1-r), proposals
    follow r^j and l^j up to one factor; those below 0 or above `most` are drawn again.
    """
    left, right = spec.left_weight, spec.right_weight
    chances = np.array([left * (RATIO_SUM - right), RATIO_SUM * (RATIO_SUM - left)])
    if spec.peak == 0:
        chances[0] = 0  # there is no left flank, and every proposal on the right is accepted
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
    """Draw from P(j) = (1-x)·x^j, x = weight / RATIO_SUM: count successes before a failure."""
    steps = np.zeros(count, dtype=np.int64)
    going = np.arange(count)
    while going.size:
        going = going[rng.integers(0, RATIO_SUM, size=len(going), dtype=np.int64) < weight]
        steps[going] += 1
    return steps
