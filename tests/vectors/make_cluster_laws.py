"""
Make the table of clusters that the planner calibrates.

    python -m tests.vectors.make_cluster_laws

The table states each law's ε, level of error, negative weight and rooms, which are kept: they gave
the fewest reports among some hundred, or less influence to a liar; single rooms are for padding to
one length. For each, the script looks for the types of clusters that need the fewest reports. It
starts from simple ones: single reports of both signs, a frequent small cluster that cancels in the
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.task.cluster_dummies import MAX_TYPES
from shuffledp.lab.planning import cluster_law
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.cluster_law import FILE, ClusterLaw, poisson_delta, shipped_laws

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
class Rates:
    """Types of clusters, and their rates; all of shape (types,)."""

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    rates: Vector
    elasticities: Vector | None = None
    """Derivatives of log δ in the log rates."""


def first_rates(law: ClusterLaw) -> Rates:
    """Return rates to start from: eight of each cancelling cluster, and few of all others."""
    weight, size = law.negative_weight, law.sizes[-1]
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


def variance_at_level(law: ClusterLaw) -> float:
    """Return the variance of a count at the law's level."""
    return law.level * 2 / gaussian_mu(law.epsilon, law.delta) ** 2


def optimize(law: ClusterLaw, start: Rates, steps: int, learning_rate: float) -> Rates:
    """Return rates with fewer reports for the law's δ and variance. Cost: `steps` gradients."""
    squares = (start.positive - law.negative_weight * start.negative) ** 2
    costs = _costs(law, start)
    logs, gap = np.log(start.rates), 0.0
    mean, square = np.zeros_like(logs), np.zeros_like(logs)
    for step in range(1, steps + 1):
        rates = np.exp(logs)
        delta, slopes = poisson_delta(start.positive, start.negative, rates, law.epsilon)
        elasticities = slopes() * rates / delta
        reports, variance = float(rates @ costs), float(rates @ squares)
        excess = math.log(variance / variance_at_level(law))
        gap = min(max(gap + 2 * excess, 0.0), 15.0)  # the price of variance rises while it is high
        price = min(max(40 * excess + gap, 0.02), 15.0)
        gradient = rates * costs / reports + price * rates * squares / variance
        gradient += (1 + price) * elasticities / abs(elasticities.sum())
        mean, square = 0.9 * mean + 0.1 * gradient, 0.98 * square + 0.02 * gradient**2
        size = learning_rate * min(1.0, 1.5 * (1 - step / steps) + 0.05)
        spread = np.sqrt(square / (1 - 0.98**step)) + 1e-9
        logs = np.maximum(logs - size * mean / (1 - 0.9**step) / spread, _LEAST_LOG_RATE)
        # Half a Newton step along the scale of all rates keeps δ at its target.
        scale = math.log(_IDEAL_SHARE * law.delta / delta) / elasticities.sum()
        logs += min(max(0.5 * scale, -0.1), 0.1)
    return replace(start, rates=np.exp(logs), elasticities=elasticities)


def _costs(law: ClusterLaw, start: Rates) -> Vector:
    filled = [*[_SMALL_FILLED] * (len(law.sizes) - 1), _LARGEST_FILLED]
    room = np.searchsorted(law.sizes, start.positive + start.negative)
    costs: Vector = (np.array(law.sizes) / np.array(filled))[room]
    return costs


def pruned(found: Rates, most: int = MAX_TYPES) -> Rates:
    """Return the types that matter most for δ."""
    if found.elasticities is None:
        raise ValueError("elasticities come from `optimize`")
    shares = found.elasticities / found.elasticities.sum()
    kept = np.sort(np.argsort(-shares)[:most])
    kept = kept[shares[kept] > _LEAST_ELASTICITY]
    return replace(
        found, positive=found.positive[kept], negative=found.negative[kept], rates=found.rates[kept]
    )


def made(law: ClusterLaw) -> ClusterLaw:
    """Return the law with the types that its target, level, negative weight and rooms lead to."""
    dense = optimize(law, first_rates(law), _DENSE_STEPS, _RATE)
    final = optimize(law, pruned(dense), _STEPS, _RATE / 2)
    types = zip(final.positive, final.negative, final.rates, strict=True)
    return replace(law, types=tuple((int(i), int(j), float(f"{rate:.4g}")) for i, j, rate in types))


def write(found: Sequence[ClusterLaw], path: Path) -> None:
    """Write laws as JSON, one a line."""
    lines = ",\n".join(json.dumps(asdict(law), separators=(",", ":")) for law in found)
    path.write_text(f'{{"laws":[\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(
        description="Make the planner's table of clusters.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--epsilon", type=float, nargs="+", help="only the laws made for these ε")
    parser.add_argument("--output", type=Path, default=Path(cluster_law.__file__).with_name(FILE))
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    laws = shipped_laws()
    chosen = [law for law in laws if options.epsilon is None or law.epsilon in options.epsilon]
    with ProcessPoolExecutor(options.workers) as pool:
        write(list(pool.map(made, chosen)), options.output)


if __name__ == "__main__":
    main()
