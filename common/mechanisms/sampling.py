"""Exact sampling from bounded integers: coins and discrete Laplace noise [CKS20]."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.task.specs import check_int_range

_BITS: Final = 16
"""Random bits drawn for each coin; at most one coin in 2^16 needs more."""


def exact_coins(
    weight: int, total: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Toss coins that show heads with probability exactly weight / total. Run by the user agent.

    Let weight·2^16 = t·total + r, so weight / total = (t + r/total) / 2^16. For a uniform 16-bit u,
    u < t is heads and u > t is tails; at u = t a uniform integer below total decides: heads if it
    is below r.

    The weight is 0 .. total, and the total 1 .. 2^63-1. Returns True for heads. Cost: 16 random
    bits per coin, a quarter of the cost of a 64-bit draw below total.
    """
    threshold, rest = divmod(weight << _BITS, total)
    draw = rng.integers(0, 1 << _BITS, size=shape, dtype=np.uint16)
    heads: NDArray[np.bool_] = draw < threshold
    if rest:
        undecided = draw == threshold
        count = int(undecided.sum())
        heads[undecided] = rng.integers(0, total, size=count, dtype=np.int64) < rest
    return heads


MAX_SCALE: Final = 2**50
"""Maximum scale t; products of t with the number of tosses, a few dozen, stay below 2^63."""


def discrete_laplace(scale: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Draw integer noise x of a whole scale t, P(x) ∝ e^(-|x|/t). Run by the user agent.

    Algorithm 2 of [CKS20]: U is uniform below t, accepted with probability e^(-U/t); V counts the
    heads before the first tail of a coin with heads probability 1/e. Then U + t·V is geometric of
    scale t. A fair coin gives the sign; -0 is rejected. Returns `size` independent draws. Raises
    TaskError unless the scale is in 1 .. MAX_SCALE. Cost: about 12 random integers per draw.
    """
    check_int_range("the scale of the noise", scale, 1, MAX_SCALE)
    noise = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        u = rng.integers(0, scale, size=size - done, dtype=np.int64)
        u = u[exponential_coins(u, scale, rng)]
        magnitude = u + scale * _heads_before_a_tail(len(u), rng)
        negative = rng.integers(0, 2, size=len(magnitude), dtype=np.int64).astype(np.bool_)
        accepted = np.where(negative, -magnitude, magnitude)[~(negative & (magnitude == 0))]
        noise[done : done + len(accepted)] = accepted
        done += len(accepted)
    return noise


def exponential_coins(
    numerators: NDArray[np.int64], denominator: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Toss coins that show heads with probability exactly e^(-γ), 0 ≤ γ ≤ 1; Algorithm 1 of [CKS20].

    Toss coins with probabilities γ/1, γ/2, γ/3, .. of heads, and let the K-th be the first tail.
    Then P(K > k) = γ^k/k!, so K is odd with probability 1 - γ + γ²/2 - .. = e^(-γ).

    `numerators`, shape (n,), holds γ · denominator of each coin, for a denominator of 1 ..
    MAX_SCALE. Returns True for heads, shape (n,).
    """
    first_tail = np.zeros(len(numerators), dtype=np.int64)
    tossing = np.arange(len(numerators))
    place = 1
    while len(tossing):
        draw = rng.integers(0, denominator * place, size=len(tossing), dtype=np.int64)
        heads = draw < numerators[tossing]
        first_tail[tossing[~heads]] = place
        tossing = tossing[heads]
        place += 1
    return np.asarray(first_tail % 2 == 1)


def _heads_before_a_tail(size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Count the heads before the first tail of a coin with heads probability 1/e, `size` times."""
    counts = np.zeros(size, dtype=np.int64)
    tossing = np.arange(size)
    while len(tossing):
        tossing = tossing[exponential_coins(np.ones(len(tossing), dtype=np.int64), 1, rng)]
        counts[tossing] += 1
    return counts
