"""The exact distribution of a randomizer's reports, over every draw that it can make."""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Any, Final

import numpy as np

from shuffledp.common.mechanisms.base import Reports

QUARTERS: Final = 4
"""Parts of a long range that stand for it: enough where every threshold is a multiple of 1/4."""
_LONG: Final = (2**16, 2**32)


class _RedrawnError(Exception):
    """A draw beyond the first round of a rejection sampler."""


class _Path(np.random.Generator):
    """A generator that repeats given choices, and then makes the first choice of each range."""

    def __init__(self, path: list[list[int]], most_calls: int, ranges: dict[int, int]) -> None:
        super().__init__(np.random.PCG64(0))
        self._path, self._at = path, 0
        self._calls_left, self._ranges = most_calls, ranges

    def integers(self, low: Any, high: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Return one choice for each integer."""
        assert low == 0
        self._calls_left -= 1
        if self._calls_left < 0:
            raise _RedrawnError
        number = self._ranges.get(high, QUARTERS if high in _LONG else high)
        scale = high // number if high in _LONG else 1
        drawn = [self._choice(number) * scale for _ in range(prod(np.atleast_1d(options["size"])))]
        return np.array(drawn, dtype=options["dtype"]).reshape(options["size"])

    def _choice(self, number: int) -> int:
        if self._at == len(self._path):
            self._path.append([0, number])
        self._at += 1
        return self._path[self._at - 1][0]


def exact_reports(
    draw: Callable[[np.random.Generator], Reports],
    *,
    most_calls: int = 100,
    ranges: dict[int, int] | None = None,
) -> dict[bytes, Fraction]:
    """
    Return the probability of each report, by making every sequence of choices once.

    After `most_calls` calls of the generator a path is left out: of a sampler that draws again
    until it accepts, whose rounds are all alike, what remains is the distribution of one round.
    `ranges` says how many first numbers of a range suffice, if not all matter.
    """
    path: list[list[int]] = []
    found: dict[bytes, Fraction] = defaultdict(Fraction)
    while True:
        try:
            report = draw(_Path(path, most_calls, ranges or {})).tobytes()
        except _RedrawnError:
            pass
        else:
            found[report] += Fraction(1, prod(number for _, number in path))
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            break
        path[-1][0] += 1
    total = sum(found.values())
    return {report: chance / total for report, chance in found.items()}
