"""
Draw which reports a sampling shuffler keeps, and how many dummies it adds to each item. Pure.

Every draw is exact: fair bits, and bounded integers that numpy draws by rejection. A floating-point
table of the distribution would cut off its tail, on which the δ of the guarantee depends [MSE25].
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.task.dummy_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec

_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 2**22
"""Maximum number of random words in memory: 32 MiB."""


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

    Returns counts of shape (domain_size,), each in 0 .. spec.most. Cost: `spec.draws_per_item`
    draws per item.
    """
    if spec.law == "binomial":
        return _binomial(spec.trials, domain_size, rng)
    if spec.law == "geometric":
        return _two_sided_geometric(spec, domain_size, rng)
    return np.zeros(domain_size, dtype=np.int64)


def _binomial(coins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` numbers of heads among `coins` fair coins: the set bits of random words."""
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


def _two_sided_geometric(
    spec: ShufflerSpec, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw `count` numbers with P(z) ∝ l^(peak-z) below the peak and ∝ r^(z-peak) from it on.

    By rejection: a fair coin proposes a side, and a geometric number is the distance j to the peak,
    with probability (1-r)·r^j for j ≥ 0 above and (1-l)·l^(j-1) for j ≥ 1 below. Proposals above
    are accepted with chance ∝ 1-l, those below ∝ l·(1-r): either way (1-l)·(1-r) times r^j or l^j
    remains. Numbers below 0 or above `most` are drawn again.
    """
    left, right = spec.left_weight, spec.right_weight
    chances = np.array([left * (RATIO_SUM - right), RATIO_SUM * (RATIO_SUM - left)])
    if spec.peak == 0:
        chances[0] = 0  # no left flank: every proposal on the right is accepted
    drawn = np.full(count, -1, dtype=np.int64)
    while (open_ := np.flatnonzero(drawn < 0)).size:
        above = rng.integers(0 if spec.peak else 1, 2, size=len(open_), dtype=np.int64)
        accepted = rng.integers(0, chances.max(), size=len(open_), dtype=np.int64) < chances[above]
        steps = np.empty(len(open_), dtype=np.int64)
        for side, weight in ((0, left), (1, right)):
            chosen = above == side
            steps[chosen] = _geometric(weight, int(chosen.sum()), rng)
        proposed = np.where(above == 1, spec.peak + steps, spec.peak - 1 - steps)
        fits = accepted & (proposed >= 0) & (proposed <= spec.most)
        drawn[open_[fits]] = proposed[fits]
    return drawn


def _geometric(weight: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` numbers with P(j) = (1-x)·x^j for j ≥ 0, where x = weight / RATIO_SUM."""
    steps = np.zeros(count, dtype=np.int64)
    active = np.arange(count)
    while active.size:
        active = active[rng.integers(0, RATIO_SUM, size=len(active), dtype=np.int64) < weight]
        steps[active] += 1
    return steps
