"""
Every refinement against the unrefined shares: squared error over all items, and over the top 50.

A figure is a mean of ratios over collections from everybody, with its standard error. The square
wave has no unrefined shares: there the ratio is against a uniform guess. Some three minutes; run
as `python -m tests.benchmarks.refinements`.
"""

import time
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analyzer.estimation.histogram import REFINEMENTS
from common.mechanisms.base import Vector
from common.protocols import Refinement
from deploy.datasets.catalogue import Dataset
from tests.benchmarks.measure import line
from tests.benchmarks.refinement_cases import Collect, collectors, datasets, noise_levels

_TOP: Final = 50
_RUNS: Final = 10
_LARGE_RUNS: Final = 4
_LARGE: Final = 10_000
"""Items from which on fewer collections are made, and nothing is smoothed."""


def main() -> None:
    """Measure data set by data set, level of noise by level."""
    for people in datasets():
        for level, noise in noise_levels(people.n_users).items():
            for mechanism, collect in collectors(people, noise):
                _measure(people, level, mechanism, collect)


def _measure(people: Dataset, level: str, mechanism: str, collect: Collect) -> None:
    truth = people.counts / people.n_users
    top = np.argsort(truth)[::-1][:_TOP]
    large = people.domain_size >= _LARGE
    rng = np.random.default_rng(zlib.crc32(f"{people.name} {level} {mechanism}".encode()))
    collected = [collect(rng) for _ in range(_LARGE_RUNS if large else _RUNS)]
    before = _errors([evidence.shares for evidence in collected], truth)
    for name in _fitting(mechanism, large=large):
        started = time.perf_counter()
        refined = [REFINEMENTS[name](evidence) for evidence in collected]
        seconds = (time.perf_counter() - started) / len(collected)
        after = _errors(refined, truth)
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


def _fitting(mechanism: str, *, large: bool) -> list[Refinement]:
    """Say what can be measured: a likelihood needs cells, the square wave has nothing else."""
    likelihoods: set[Refinement] = {"em", "ems"}
    left = likelihoods if mechanism == "square-wave" else set(REFINEMENTS)
    if mechanism == "unary":
        left -= likelihoods
    if large:
        left -= {"ems"}
    return [name for name in REFINEMENTS if name in left]


def _errors(estimates: list[Vector], truth: Vector) -> NDArray[np.float64]:
    """Squared errors, shape (collections, items)."""
    errors: NDArray[np.float64] = (np.array(estimates) - truth) ** 2
    return errors


def _ratio(name: str, after: NDArray[np.float64], before: NDArray[np.float64]) -> dict[str, float]:
    """Give the mean ratio of the collections' mean errors, and its standard error."""
    ratios = after.mean(axis=1) / before.mean(axis=1)
    error = float(ratios.std(ddof=1) / len(ratios) ** 0.5)
    return {f"{name}_ratio": float(ratios.mean()), f"{name}_ratio_se": error}


if __name__ == "__main__":
    main()
