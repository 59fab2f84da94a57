"""
Every refinement against the unrefined shares: squared error over all items, and over the top 50.

A figure is a mean of ratios over collections from everybody, with its standard error. The square
wave is compared with a uniform guess instead. Some minutes.
"""

import math
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from shuffledp.analyzer.estimation.histogram import REFINEMENTS, DebiasedShares
from shuffledp.common.mechanisms.base import Counts, Mechanism, Mixture
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.square_wave import SquareWave, best_reach
from shuffledp.common.mechanisms.unary import MAX_BITS, OptimizedUnary
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.protocols import Refinement
from shuffledp.deploy.datasets.sources import Dataset, dataset
from tests.benchmarks.conftest import Best, Line

_TOP: Final = 50
_RUNS: Final = 10
_LARGE_RUNS: Final = 4
_LARGE: Final = 10_000
"""Items from which on fewer collections are made, and nothing is smoothed."""
_DELTA: Final = 1e-6
_MAX_LOCAL_EPSILON: Final = 20.0
_FEWEST_BUCKETS: Final = 3
_MOST_BUCKETS: Final = 1009
"""More than a million cells take minutes to refine."""
_SMOOTH_USERS: Final = 100_000

Collect = Callable[[np.random.Generator], DebiasedShares]
"""One collection from all people of a data set."""


def _smooth() -> Dataset:
    """A data set that is smooth in its order."""
    middles = (np.arange(256) + 0.5) / 256
    density = 0.6 * stats.beta(4, 9).pdf(middles) + 0.4 * stats.beta(20, 6).pdf(middles)
    return Dataset(
        name="smooth:256",
        title="Synthetic: a mixture of two beta distributions in 256 bins",
        labels=(),
        counts=np.rint(density / density.sum() * _SMOOTH_USERS).astype(np.int64),
    )


def _noise_levels(n_users: int) -> dict[str, float]:
    """
    Variances of an absent item's share, in published closed forms.

    `low` and `medium` are OD-HP's with one dummy per user at a central ε of 1 and of .1 [CC24],
    `high` is optimized local hashing's at a local ε of 1 [WBLJ17].
    """
    central = 28 * math.log(4 / _DELTA) / n_users**2
    local = 4 * math.e / (math.e - 1) ** 2 / n_users
    return {"low": central, "medium": 100 * central, "high": local}


def _collectors(people: Dataset, noise: float) -> Iterator[tuple[str, Collect]]:
    """Yield mechanisms by name, each with the local ε that has this variance of an absent item."""
    size, n_users = people.domain_size, people.n_users
    wanted = round(1 + 2 / (n_users * noise))  # half of the noise is collisions
    buckets = _prime(min(max(_FEWEST_BUCKETS, wanted), _MOST_BUCKETS))
    made: dict[str, Callable[[float], Mechanism]] = {
        "grr": lambda epsilon: Grr(size, ResponseWeights.for_epsilon(epsilon))
    }
    if buckets < size:
        family = family_for(size, buckets)
        made["local-hashing"] = lambda epsilon: LocalHashing(
            size, family, ResponseWeights.for_epsilon(epsilon), b"n" * 32
        )
    if size <= MAX_BITS:
        made["unary"] = lambda epsilon: OptimizedUnary(size, OptimizedUnary.weights_for(epsilon))
    for name, make in made.items():
        mechanism = _calibrated(make, n_users, noise)
        if mechanism is not None:
            yield name, _of_mechanism(mechanism, people.counts)
    yield "geometric", _of_item_noise(people.counts, noise)
    if people.name.startswith("smooth"):
        # The local ε at which optimized local hashing has this noise: 1 / (4 sinh²(ε / 2)).
        epsilon = 2 * math.asinh(1 / math.sqrt(noise * n_users))
        weights = ResponseWeights.for_epsilon(epsilon)
        wave = _of_mechanism(SquareWave(size, best_reach(size, epsilon), weights), people.counts)
        yield "square-wave", lambda rng: replace(wave(rng), shares=np.full(size, 1 / size))


def _calibrated(make: Callable[[float], Mechanism], n_users: int, noise: float) -> Mechanism | None:
    """Find the local ε with this noise; None if 20 is too little."""
    mixture = Mixture(n_real=n_users)

    def excess(local_epsilon: float) -> float:
        variance = make(local_epsilon).variance(np.zeros(1), mixture)[0]
        return float(np.log(variance / noise))

    if excess(_MAX_LOCAL_EPSILON) > 0:
        return None
    return make(float(optimize.brentq(excess, 0.01, _MAX_LOCAL_EPSILON, xtol=1e-3)))


def _of_mechanism(mechanism: Mechanism, counts: Counts) -> Collect:
    mixture = Mixture(n_real=int(counts.sum()))
    return lambda rng: DebiasedShares.of(mechanism, mechanism.sample_cells(counts, 0, rng), mixture)


def _of_item_noise(counts: Counts, noise: float) -> Collect:
    """
    Plain items without local noise, among a geometric number of dummies of each item.

    As in sageo: variance (1-p)/p², about the mean squared.
    """
    grr = Grr(len(counts), ResponseWeights.for_epsilon(math.inf))
    n_users = int(counts.sum())
    spread = noise * n_users**2
    stop = (math.sqrt(1 + 4 * spread) - 1) / (2 * spread)
    mixture = Mixture(
        n_real=n_users, item_mean=(1 - stop) / stop, item_variance=(1 - stop) / stop**2
    )

    def collect(rng: np.random.Generator) -> DebiasedShares:
        dummies = rng.geometric(stop, len(counts)) - 1
        return DebiasedShares.of(grr, counts + dummies, mixture)

    return collect


def _prime(least: int) -> int:
    candidate = least
    while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate


def _fitting(mechanism: str, *, large: bool) -> list[Refinement]:
    """Return the refinements that can be measured: a likelihood needs cells."""
    likelihoods: set[Refinement] = {"em", "ems"}
    left = likelihoods if mechanism == "square-wave" else set(REFINEMENTS)
    left -= likelihoods if mechanism == "unary" else set()
    left -= {"ems"} if large else set()
    return [name for name in REFINEMENTS if name in left]


def _ratio(name: str, after: NDArray[np.float64], before: NDArray[np.float64]) -> dict[str, float]:
    """Return the mean ratio of the collections' mean errors, and its standard error."""
    ratios = after.mean(axis=1) / before.mean(axis=1)
    error = float(ratios.std(ddof=1) / len(ratios) ** 0.5)
    return {f"{name}_ratio": float(ratios.mean()), f"{name}_ratio_se": error}


@pytest.mark.parametrize("level", ["low", "medium", "high"])
@pytest.mark.parametrize(
    "name",
    [
        *("ipums1940_city", "kosarak_prefix", "kosarak_reconstructed", "zipf:1000,1.1"),
        *("uniform:1000", "smooth"),
    ],
)
def test_refinements(name: str, level: str, best: Best, line: Line) -> None:
    """One data set, at one level of noise, by every mechanism."""
    people = _smooth() if name == "smooth" else dataset(name)
    best(1, lambda: _measure(people, level, line))


def _measure(people: Dataset, level: str, line: Line) -> None:
    truth = people.counts / people.n_users
    top, large = np.argsort(truth)[::-1][:_TOP], people.domain_size >= _LARGE
    for mechanism, collect in _collectors(people, _noise_levels(people.n_users)[level]):
        rng = np.random.default_rng(zlib.crc32(f"{people.name} {level} {mechanism}".encode()))
        collected = [collect(rng) for _ in range(_LARGE_RUNS if large else _RUNS)]
        before = (np.array([evidence.shares for evidence in collected]) - truth) ** 2
        for name in _fitting(mechanism, large=large):
            started = time.perf_counter()
            refined = np.array([REFINEMENTS[name](evidence) for evidence in collected])
            seconds = (time.perf_counter() - started) / len(collected)
            after = (refined - truth) ** 2
            line(
                "refinements",
                data=people.name,
                noise=level,
                noise_over_mean_share=float(collected[0].absent_errors[0] * people.domain_size),
                mechanism=mechanism,
                refinement=name,
                **_ratio("mse", after, before),
                **_ratio("top_50", after[:, top], before[:, top]),
                seconds=seconds,
            )
