"""
Make tests/vectors/two_items.json: δ of randomized response over two items, by definition.

Run as `python -m tests.vectors.make_two_items`. Every number of others who hold x is tried; of many
users, some are. Nothing is shared with the accountant: distributions of counts are convolved.
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

_FILE: Final = Path(__file__).with_name("two_items.json")
_NOTE: Final = (
    "Replace-one neighbours. n = users; eps_l = local epsilon; M = dummies, and M_binom = [trials, "
    "probability] of more; delta = the largest of all others' values, or if `some` of some values: "
    "then a bound may be up to 2 % larger."
)
_DEVIATIONS: Final = 11
_DIRECT: Final = 10**4

Count = tuple[int, NDArray[np.float64]]
"""The first outcome, and the probabilities from there on."""


def _coins(trials: int, chance: float) -> Count:
    spread = _DEVIATIONS * math.sqrt(trials * chance * (1 - chance)) + 50
    first = max(0, math.floor(trials * chance - spread))
    last = min(trials, math.ceil(trials * chance + spread))
    return first, stats.binom.pmf(np.arange(first, last + 1), trials, chance)


def _plus(one: Count, other: Count) -> Count:
    direct = min(len(one[1]), len(other[1])) < _DIRECT
    convolve = np.convolve if direct else signal.fftconvolve
    return one[0] + other[0], convolve(one[1], other[1])


def delta_of(held: int, other: int, dummies: Count | None, local: float, epsilon: float) -> float:
    """Return Σ (P - e^ε·P')₊ of the count of x, if the victim holds x, or x'."""
    q = 1 / (1 + math.exp(local))
    p, growth = 1 - q, math.exp(epsilon)
    _, count = _plus(_coins(held, p), _coins(other, q))
    if dummies is not None:
        _, count = _plus((0, count), dummies)
    with_it, without = np.append(0, count), np.append(count, 0)
    loss = (p - growth * q) * with_it - (growth * p - q) * without
    return float(np.maximum(loss, 0).sum())


def worst_delta(
    n: int, held: Iterable[int], numbers: dict[int, float], local: float, epsilon: float
) -> float:
    """Return the largest δ among numbers of others who hold x, averaged over those of dummies."""
    added = {number: _coins(number, 0.5) if number else None for number in numbers}
    return max(
        sum(
            share * delta_of(j, n - 1 - j, added[number], local, epsilon)
            for number, share in numbers.items()
        )
        for j in held
    )


def _rows() -> Iterator[dict[str, Any]]:
    for n, dummies, local in (
        *itertools.product((1, 2, 5, 8, 40), (0, 3), (0.1, 1.0, 4.0)),
        *((300, 40, 0.5), (300, 0, 3.0), (1000, 0, 1.0), (2000, 0, 0.5), (2000, 100, 3.0)),
    ):
        for share in (0.0, 0.1, 0.4, 0.9):
            delta = worst_delta(n, range(n), {dummies: 1.0}, local, share * local)
            if delta > 1e-12:
                yield {"n": n, "eps_l": local, "M": dummies, "eps": share * local, "delta": delta}
    for n, dummies, trials, chance, local, epsilon in (
        (1, 0, 9, 0.4, 2.0, 0.3),
        (6, 2, 12, 0.3, 1.0, 0.4),
        (50, 0, 50, 0.2, 3.0, 1.0),
        (200, 5, 40, 0.5, 2.0, 0.6),
    ):
        pmf = stats.binom.pmf(np.arange(trials + 1), trials, chance)
        numbers = {dummies + more: float(each) for more, each in enumerate(pmf)}
        delta = worst_delta(n, range(n), numbers, local, epsilon)
        given = {"n": n, "eps_l": local, "M": dummies, "M_binom": [trials, chance]}
        yield {**given, "eps": epsilon, "delta": delta}
    for n, dummies, local, epsilon in (
        (20_000, 0, 3.0, 0.11459),
        (20_000, 5_000, 3.0, 0.0698),
        (100_000, 0, 4.0, 0.08471),
        (10**7, 0, 4.0, 0.006815),
        (10**7, 10**7, 2.0, 0.0011),
    ):
        held = [(n - 1) * part // 16 for part in range(17)]
        delta = worst_delta(n, held, {dummies: 1.0}, local, epsilon)
        given = {"n": n, "eps_l": local, "M": dummies, "eps": epsilon}
        yield {**given, "delta": delta, "some": True}


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row) for row in _rows())
    _FILE.write_text(f'{{"note": {json.dumps(_NOTE)}, "vectors": [\n{lines}\n]}}\n')
