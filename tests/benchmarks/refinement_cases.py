"""What refinements are measured on: data sets, and mechanisms whose noise has a given size."""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from scipy import optimize, stats

from analyzer.estimation.histogram import Evidence, gather
from common.mechanisms.base import Channel, Counts, Mechanism, Mixture, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from common.mechanisms.randomized_response import Grr
from common.mechanisms.support import Support, debias, variance
from common.mechanisms.weights import ResponseWeights
from deploy.datasets.catalogue import Dataset
from deploy.datasets.choice import dataset

MAX_LOCAL_EPSILON: Final = 20.0

_DELTA: Final = 1e-6
_FEWEST_BUCKETS: Final = 3
_MOST_BUCKETS: Final = 1009
"""More than a million cells take minutes to refine; hashing is left out where it needs more."""
_SMOOTH_USERS: Final = 100_000

Collect = Callable[[np.random.Generator], Evidence]
"""One collection from all people of a data set."""


def datasets() -> Iterator[Dataset]:
    """Give real and synthetic ones, and at the end one that is smooth in its order."""
    for text in ("ipums1940_city", "kosarak_prefix", "kosarak_reconstructed"):
        yield dataset(text)
    yield dataset("zipf:1000,1.1")
    yield dataset("uniform:1000")
    middles = (np.arange(256) + 0.5) / 256
    density = 0.6 * stats.beta(4, 9).pdf(middles) + 0.4 * stats.beta(20, 6).pdf(middles)
    yield Dataset(
        name="smooth:256",
        title="Synthetic: a mixture of two beta laws in 256 bins",
        labels=(),
        counts=np.rint(density / density.sum() * _SMOOTH_USERS).astype(np.int64),
    )


def noise_levels(n_users: int) -> dict[str, float]:
    """
    Give the variance of an absent item's share: what a share costs in published closed forms.

    `low` and `medium` are OD-HP's with a dummy a user at a central ε of 1 and of .1 [CC24], `high`
    is optimized local hashing's at a local ε of 1 [WBLJ17].
    """
    central = 28 * math.log(4 / _DELTA) / n_users**2
    local = 4 * math.e / (math.e - 1) ** 2 / n_users
    return {"low": central, "medium": 100 * central, "high": local}


def collectors(people: Dataset, noise: float) -> Iterator[tuple[str, Collect]]:
    """Give mechanisms by name, each with parameters for this variance of an absent item."""
    counts, size = people.counts, people.domain_size
    n_users = people.n_users
    grr = _calibrated(lambda weights: Grr(size, weights), n_users, noise)
    if grr is not None:
        yield "grr", _of_mechanism(grr, counts)
    wanted = round(1 + 2 / (n_users * noise))  # half of the noise is collisions
    buckets = _prime(min(max(_FEWEST_BUCKETS, wanted), _MOST_BUCKETS))
    if buckets < size:
        family = family_for(size, buckets)
        hashing = _calibrated(
            lambda weights: LocalHashing(size, family, weights, b"n" * 32), n_users, noise
        )
        if hashing is not None:
            yield "local-hashing", _of_mechanism(hashing, counts)
    yield "unary", _unary(counts, noise)
    yield "coins", _of_item_noise(counts, noise, _coins)
    yield "geometric", _of_item_noise(counts, noise, _geometric)
    if people.name.startswith("smooth"):
        yield "square-wave", _square_wave(counts, noise)


def _calibrated(
    make: Callable[[ResponseWeights], Mechanism], n_users: int, noise: float
) -> Mechanism | None:
    """Find the local ε that makes this noise; None if 20 is too little."""

    def made(local_epsilon: float) -> Mechanism:
        return make(ResponseWeights.for_epsilon(local_epsilon))

    def excess(local_epsilon: float) -> float:
        absent = np.zeros(1)
        return float(np.log(made(local_epsilon).variance(absent, mixture)[0] / noise))

    mixture = Mixture(n_real=n_users)
    if excess(MAX_LOCAL_EPSILON) > 0:
        return None
    return made(float(optimize.brentq(excess, 0.01, MAX_LOCAL_EPSILON, xtol=1e-3)))


def _of_mechanism(mechanism: Mechanism, counts: Counts) -> Collect:
    mixture = Mixture(n_real=int(counts.sum()))
    return lambda rng: gather(mechanism, mechanism.sample_cells(counts, 0, rng), mixture)


def _unary(counts: Counts, noise: float) -> Collect:
    """Optimized unary encoding: a bit an item, the own kept with probability 1/2 [WBLJ17]."""
    n_users = int(counts.sum())
    flipped = float(
        optimize.brentq(lambda q: q * (1 - q) / (n_users * (0.5 - q) ** 2) - noise, 0, 0.4999999)
    )
    bits, mixture = Support(p=0.5, q=flipped, q_dummy=flipped), Mixture(n_real=n_users)

    def collect(rng: np.random.Generator) -> Evidence:
        support = rng.binomial(counts, 0.5) + rng.binomial(n_users - counts, flipped)
        shares = debias(support, mixture, bits)
        return Evidence(
            shares=shares,
            standard_errors=np.sqrt(variance(np.clip(shares, 0, 1), mixture, bits)),
            absent_errors=np.sqrt(variance(np.zeros(len(counts)), mixture, bits)),
            n_users=n_users,
            cells=support,
            channel=None,
        )

    return collect


def _of_item_noise(
    counts: Counts,
    noise: float,
    law: Callable[[float, int, np.random.Generator], tuple[Counts, float, float]],
) -> Collect:
    """Plain items without local noise, among dummies that name each item apart."""
    grr = Grr(len(counts), ResponseWeights.for_epsilon(math.inf))
    n_users = int(counts.sum())

    def collect(rng: np.random.Generator) -> Evidence:
        dummies, mean, spread = law(noise * n_users**2, len(counts), rng)
        mixture = Mixture(n_real=n_users, item_mean=mean, item_variance=spread)
        return gather(grr, counts + dummies, mixture)

    return collect


def _coins(spread: float, size: int, rng: np.random.Generator) -> tuple[Counts, float, float]:
    """Fair coins an item, as sbin adds: variance half the mean."""
    coins = max(1, round(4 * spread))
    return rng.binomial(coins, 0.5, size), coins / 2, coins / 4


def _geometric(spread: float, size: int, rng: np.random.Generator) -> tuple[Counts, float, float]:
    """A geometric number an item, as sageo adds: variance (1-p)/p², about the mean squared."""
    stop = (math.sqrt(1 + 4 * spread) - 1) / (2 * spread)
    return rng.geometric(stop, size) - 1, (1 - stop) / stop, (1 - stop) / stop**2


class _Band:
    """A cell supports the items that lie within reach of it."""

    def __init__(self, size: int, reach: int) -> None:
        cells, items = np.arange(size + 2 * reach), np.arange(size)
        self._from, self._to = np.maximum(cells - 2 * reach, 0), np.minimum(cells + 1, size)
        self._first, self._last = items, items + 2 * reach + 1

    def forward(self, theta: Vector) -> Vector:
        sums = np.concatenate([[0], np.cumsum(theta)])
        found: Vector = sums[self._to] - sums[self._from]
        return found

    def adjoint(self, weights: Vector) -> Vector:
        sums = np.concatenate([[0], np.cumsum(weights)])
        found: Vector = sums[self._last] - sums[self._first]
        return found


def _square_wave(counts: Counts, noise: float) -> Collect:
    """
    The square wave in bins [LWLWLS20], at the local ε at which OLH has this noise.

    Nothing is debiased: a uniform guess stands in its place.
    """
    size = len(counts)
    excess = noise * int(counts.sum()) / 4  # e^ε / (e^ε - 1)², which is 1 / (4 sinh²(ε / 2))
    local_epsilon = 2 * math.asinh(1 / (2 * math.sqrt(excess)))
    growth = math.exp(local_epsilon)
    ideal = (local_epsilon * growth - growth + 1) / (2 * growth * (growth - 1 - local_epsilon))
    reach = max(1, int(ideal * size))
    width, cells = 2 * reach + 1, size + 2 * reach
    other = 1 / (width * growth + size - 1)
    channel = Channel(
        incidence=_Band(size, reach),
        scale=np.ones(cells),
        kept=other * (growth - 1),
        floor=other,
    )

    def collect(rng: np.random.Generator) -> Evidence:
        near = rng.binomial(counts, width * channel.kept)
        spread = rng.multinomial(near, np.full(width, 1 / width))
        tally = rng.multinomial(counts.sum() - near.sum(), np.full(cells, 1 / cells))
        for item in range(size):
            tally[item : item + width] += spread[item]
        flat = np.full(size, 1 / size)
        return Evidence(
            shares=flat,
            standard_errors=np.zeros(size),
            absent_errors=np.zeros(size),
            n_users=int(counts.sum()),
            cells=tally,
            channel=channel,
        )

    return collect


def _prime(least: int) -> int:
    candidate = least
    while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate
