"""The joint distribution of all views of one person's value, enumerated, and its true δ."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from shuffledp.common.task.shuffler_spec import GeometricNoise
from shuffledp.common.task.uniform_dummies import BinomialDummies
from tests.support import exhaustive_delta

View = Mapping[Any, float]
Digits = tuple[int, ...]


def hidden(own: int, size: int, spec: BinomialDummies, users: int, refused: int = 0) -> View:
    """Enumerate one view: the victim's item, and dummies of so many users but for `refused`."""
    numbers = range(users + 1 if spec.extra_weight else 1)
    return exhaustive_delta.averaged(
        (
            float(stats.binom.pmf(more, users, spec.extra_probability)),
            exhaustive_delta.histogram_distribution(
                own, size, max(0, users * spec.per_user + more - refused)
            ),
        )
        for more in numbers
    )


def noised(own: int, size: int, noises: Sequence[GeometricNoise]) -> View:
    """Enumerate one view: the victim's item, and the dummies of each shuffler for each item."""
    items = [tuple(int(item == other) for other in range(size)) for item in range(size)]
    laws = [
        {tuple(z * one for one in item): chance for z, chance in enumerate(law) if chance}
        for noise in noises
        for law in [_law(noise)]
        for item in items
    ]
    return exhaustive_delta.summed({items[own]: 1.0}, *laws)


def _law(noise: GeometricNoise) -> list[float]:
    weights = [
        (noise.left_weight if z < noise.peak else noise.right_weight) ** abs(z - noise.peak)
        * 2.0 ** (-30 * abs(z - noise.peak))
        for z in range(noise.most + 1)
    ]
    return [weight / sum(weights) for weight in weights]


def digits_of(point: int, radices: Sequence[int]) -> Digits:
    """Return the digits of a point in mixed radix, the most significant first, by counting."""
    return list(itertools.product(*map(range, radices)))[point]


def largest_delta(worlds: Mapping[Any, Sequence[View]], epsilon: float) -> float:
    """Return the largest δ over all pairs of values, each with its law of every view."""
    joint = [exhaustive_delta.beside(*views) for views in worlds.values()]
    return max(exhaustive_delta.excess(pair, epsilon) for pair in itertools.permutations(joint, 2))
