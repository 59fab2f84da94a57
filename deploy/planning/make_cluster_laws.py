"""
Make the table of clusters that the planner calibrates.

    python -m deploy.planning.make_cluster_laws

For each ε and each level of error it looks for the clusters that need the fewest reports. It starts
from simple shapes: single reports of both signs, a frequent small cluster that cancels in the
estimate, (w, 1), and a large one, (w·j, j). From there it follows the gradient of
log(reports) + β·log(variance) at constant δ, in the logarithms of the rates of all types, by Adam
[KB15]. It drops types that hardly matter and follows the gradient once more.

The laws are local optima. Their privacy rests on `cluster_noise` alone, which calibrates them.
"""

import argparse
import json
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.accounting.epsilon_search import gaussian_mu
from common.mechanisms.base import Vector
from common.task.cluster_spec import MAX_TYPES
from deploy.planning.cluster_law import FILE, ClusterLaw, poisson_delta

DELTA: Final = 1e-6
SHAPES: Final = (
    (0.05, 0.85, 26, (27, 81)),
    (0.05, 0.6, 24, (25, 130)),
    (0.05, 0.45, 20, (21, 90, 210)),
    (0.1, 0.85, 20, (8, 40)),
    (0.1, 0.85, 13, (14, 42)),
    (0.1, 0.7, 8, (9, 50)),
    (0.1, 0.6, 13, (14, 70)),
    (0.1, 0.6, 8, (9, 63)),
    (0.1, 0.6, 5, (6, 54)),
    (0.1, 0.5, 11, (12, 40, 84)),
    (0.1, 0.42, 10, (11, 50, 110)),
    (0.2, 1.1, 14, (6, 18)),
    (0.2, 0.85, 16, (6, 20)),
    (0.2, 0.85, 6, (7, 21)),
    (0.2, 0.7, 5, (6, 24)),
    (0.2, 0.6, 6, (7, 35)),
    (0.2, 0.6, 3, (4, 32)),
    (0.2, 0.5, 6, (7, 20, 42)),
    (0.2, 0.42, 6, (7, 25, 56)),
    (0.2, 0.42, 4, (5, 22, 50)),
    (0.2, 0.35, 5, (6, 27, 66)),
    (0.3, 0.85, 4, (5, 15)),
    (0.3, 0.7, 3, (4, 16)),
    (0.3, 0.6, 4, (5, 22)),
    (0.3, 0.42, 4, (5, 16, 35)),
    (0.3, 0.34, 3, (4, 18, 44)),
    (0.5, 1.1, 7, (3, 8)),
    (0.5, 0.85, 8, (3, 9)),
    (0.5, 0.85, 6, (2, 7)),
    (0.5, 0.85, 3, (4, 12)),
    (0.5, 0.7, 3, (4, 12)),
    (0.5, 0.6, 4, (5, 15)),
    (0.5, 0.6, 2, (3, 12)),
    (0.5, 0.5, 7, (2, 8, 16)),
    (0.5, 0.5, 3, (4, 8, 16)),
    (0.5, 0.42, 3, (4, 9, 20)),
    (0.5, 0.42, 2, (3, 8, 18)),
    (0.5, 0.36, 3, (4, 11, 24)),
    (0.5, 0.315, 3, (4, 14, 32)),
    (0.5, 0.3, 2, (3, 15, 36)),
    (0.5, 0.62, 2, (6,)),
    (0.5, 0.48, 2, (9,)),
    (0.7, 0.85, 4, (1, 5)),
    (0.7, 0.6, 3, (4, 12)),
    (0.7, 0.6, 2, (3, 9)),
    (0.7, 0.42, 3, (4, 7, 16)),
    (0.7, 0.42, 1, (2, 10, 22)),
    (0.7, 0.32, 2, (3, 11, 24)),
    (0.7, 0.28, 2, (3, 14, 33)),
    (1.0, 1.1, 5, (2, 6)),
    (1.0, 0.85, 4, (1, 5)),
    (1.0, 0.85, 2, (3, 6)),
    (1.0, 0.7, 4, (1, 5)),
    (1.0, 0.6, 4, (1, 5)),
    (1.0, 0.6, 2, (3, 6)),
    (1.0, 0.5, 3, (4, 8)),
    (1.0, 0.5, 2, (3, 9)),
    (1.0, 0.42, 2, (3, 5, 12)),
    (1.0, 0.42, 1, (2, 7, 16)),
    (1.0, 0.36, 2, (3, 6, 15)),
    (1.0, 0.32, 2, (3, 8, 18)),
    (1.0, 0.32, 1, (2, 10, 22)),
    (1.0, 0.285, 1, (2, 12, 28)),
    (1.0, 0.255, 1, (2, 16, 36)),
    (1.0, 0.9, 2, (3,)),
    (1.0, 0.58, 2, (4,)),
    (1.0, 0.45, 2, (6,)),
    (1.5, 0.85, 3, (1, 4)),
    (1.5, 0.6, 3, (1, 4)),
    (1.5, 0.6, 1, (2, 6)),
    (1.5, 0.42, 2, (3, 9)),
    (1.5, 0.42, 1, (2, 10)),
    (1.5, 0.32, 1, (2, 6, 14)),
    (1.5, 0.265, 1, (2, 10, 24)),
    (2.0, 0.85, 2, (1, 3)),
    (2.0, 0.85, 1, (2, 4)),
    (2.0, 0.7, 2, (1, 3)),
    (2.0, 0.6, 2, (1, 3)),
    (2.0, 0.6, 1, (2, 4)),
    (2.0, 0.5, 2, (3, 6)),
    (2.0, 0.42, 2, (3, 6)),
    (2.0, 0.42, 1, (2, 8)),
    (2.0, 0.42, 1, (2, 6)),
    (2.0, 0.36, 1, (2, 10)),
    (2.0, 0.32, 1, (2, 5, 12)),
    (2.0, 0.32, 1, (2, 8)),
    (2.0, 0.285, 1, (2, 6, 14)),
    (2.0, 0.26, 1, (2, 8, 18)),
    (2.0, 0.75, 1, (2,)),
    (2.0, 0.6, 2, (3,)),
    (2.0, 0.45, 1, (4,)),
)
"""ε; error to reach, divided by the central Gaussian mechanism's; negative weight; rooms. They gave
the fewest reports among some hundred shapes, or less influence to a liar. Single rooms are for
padding to one length."""
_IDEAL_SHARE: Final = 0.35
"""δ of independent Poisson numbers, as a share of the bound that rooms give."""
_SMALL_FILLED, _LARGEST_FILLED = 0.8, 0.9
"""Assumed shares of shown rooms that are filled, for the cost of rooms."""
_DENSE_STEPS, _STEPS = 180, 200
_RATE: Final = 0.1
_LEAST_LOG_RATE: Final = -14.0
_LEAST_ELASTICITY: Final = 1e-5
"""Types whose rate moves log δ by less than this share of all types' are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A starting point: the target, the negative weight and the rooms."""

    epsilon: float
    level: float
    """Error to reach, divided by the central Gaussian mechanism's."""
    weight: int
    """Negative weight."""
    sizes: tuple[int, ...]

    @property
    def variance(self) -> float:
        """Variance of a count at the level."""
        return self.level * 2 / gaussian_mu(self.epsilon, DELTA) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Types of clusters, and their rates; all of shape (types,)."""

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    rates: Vector
    reports: float = math.inf
    """Expected reports for one item, null reports included."""
    elasticities: Vector | None = None
    """Derivatives of log δ in the log rates."""


def first_rates(shape: Shape) -> Rates:
    """Return rates to start from: eight of each cancelling cluster, and few of all others."""
    weight, size = shape.weight, shape.sizes[-1]
    many = max(1, size // (weight + 1))
    positive, negative = (axis.ravel() for axis in np.mgrid[: size + 1, : size + 1])
    cancelled = np.abs(positive - weight * negative) <= max(2, weight // 2)
    singles = (negative == 0) | ((positive == 0) & (negative <= max(14, many)))
    chosen = (positive + negative > 0) & (positive + negative <= size) & (cancelled | singles)
    i, j = positive[chosen], negative[chosen]
    rates = np.full(len(i), 2e-3)
    rates[j == 0] = 0.5 * np.exp(-i[j == 0] / max(1.0, 0.7 * weight)) + 1e-4
    rates[i == 0] = 0.3 * np.exp(-0.7 * j[i == 0]) + 1e-4
    for each in {1, many}:
        rates[(i == weight * each) & (j == each)] = 8.0
    return Rates(positive=i, negative=j, rates=rates)


def optimise(shape: Shape, start: Rates, steps: int, learning_rate: float) -> Rates:
    """Return rates with fewer reports for the shape's δ and variance. Cost: `steps` gradients."""
    delta_of = poisson_delta(start.positive, start.negative)
    squares = (start.positive - shape.weight * start.negative) ** 2
    costs = _costs(shape, start)
    logs, gap = np.log(start.rates), 0.0
    mean, square = np.zeros_like(logs), np.zeros_like(logs)
    for step in range(1, steps + 1):
        rates = np.exp(logs)
        delta, slopes = delta_of(rates, shape.epsilon)
        elasticities = slopes * rates / delta
        reports, variance = float(rates @ costs), float(rates @ squares)
        excess = math.log(variance / shape.variance)
        gap = min(max(gap + 2 * excess, 0.0), 15.0)  # the price of variance rises while it is high
        price = min(max(40 * excess + gap, 0.02), 15.0)
        gradient = rates * costs / reports + price * rates * squares / variance
        gradient += (1 + price) * elasticities / abs(elasticities.sum())
        mean, square = 0.9 * mean + 0.1 * gradient, 0.98 * square + 0.02 * gradient**2
        size = learning_rate * min(1.0, 1.5 * (1 - step / steps) + 0.05)
        spread = np.sqrt(square / (1 - 0.98**step)) + 1e-9
        logs = np.maximum(logs - size * mean / (1 - 0.9**step) / spread, _LEAST_LOG_RATE)
        # Half a Newton step along the scale of all rates keeps δ at its target.
        scale = math.log(_IDEAL_SHARE * DELTA / delta) / elasticities.sum()
        logs += min(max(0.5 * scale, -0.1), 0.1)
    return replace(start, rates=np.exp(logs), reports=reports, elasticities=elasticities)


def _costs(shape: Shape, start: Rates) -> Vector:
    filled = [*[_SMALL_FILLED] * (len(shape.sizes) - 1), _LARGEST_FILLED]
    room = np.searchsorted(shape.sizes, start.positive + start.negative)
    costs: Vector = (np.array(shape.sizes) / np.array(filled))[room]
    return costs


def pruned(found: Rates, most: int = MAX_TYPES) -> Rates:
    """Return the types that matter most for δ."""
    if found.elasticities is None:
        raise ValueError("elasticities come from `optimise`")
    shares = found.elasticities / found.elasticities.sum()
    kept = np.sort(np.argsort(-shares)[:most])
    kept = kept[shares[kept] > _LEAST_ELASTICITY]
    return replace(
        found,
        positive=found.positive[kept],
        negative=found.negative[kept],
        rates=found.rates[kept],
    )


def made(shape: Shape) -> ClusterLaw:
    """Return the law that a shape leads to."""
    dense = optimise(shape, first_rates(shape), _DENSE_STEPS, _RATE)
    final = optimise(shape, pruned(dense), _STEPS, _RATE / 2)
    types = zip(final.positive, final.negative, final.rates, strict=True)
    return ClusterLaw(
        epsilon=shape.epsilon,
        delta=DELTA,
        negative_weight=shape.weight,
        sizes=shape.sizes,
        types=tuple((int(i), int(j), float(f"{rate:.4g}")) for i, j, rate in types),
    )


def write(found: Sequence[ClusterLaw], path: Path) -> None:
    """Write laws as JSON, one a line."""
    rows = [
        {
            "epsilon": law.epsilon,
            "delta": law.delta,
            "negative_weight": law.negative_weight,
            "sizes": law.sizes,
            "types": law.types,
        }
        for law in found
    ]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text(f'{{"laws":[\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(
        description="Make the planner's table of clusters.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--epsilon", type=float, nargs="+", help="only the laws made for these ε")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name(FILE))
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    chosen = [
        Shape(epsilon=epsilon, level=level, weight=weight, sizes=sizes)
        for epsilon, level, weight, sizes in SHAPES
        if options.epsilon is None or epsilon in options.epsilon
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        write(list(pool.map(made, chosen)), options.output)


if __name__ == "__main__":
    main()
