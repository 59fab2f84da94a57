"""A small example of every mechanism, and scripted generators."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from examples.subset_selection import SubsetSelection
from shuffledp.common.mechanisms.base import Mechanism
from shuffledp.common.mechanisms.hashing.finite_field import HashFamily
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.hashing.string_hashing import StringHashing
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.unary import OptimizedUnary, SymmetricUnary
from shuffledp.common.mechanisms.weights import ResponseWeights

NONCE: Final = b"n" * 32


def _hashing(items: int, weights: ResponseWeights, q: int) -> LocalHashing:
    """Hash to q buckets, over the smallest field, so that seed 0 is drawn often."""
    digits = max(2, math.ceil(math.log(items, q)))
    return LocalHashing(items, HashFamily.holding(items, q, digits), weights, NONCE)


def _of_strings(items: int, weights: ResponseWeights) -> StringHashing:
    return StringHashing(tuple(f"item {item}" for item in range(items)), 4, weights, NONCE)


_EXAMPLES: Final[dict[str, Callable[[int, ResponseWeights], Mechanism]]] = {
    "grr": Grr,
    "warner": lambda _, weights: Grr(2, weights),
    "symmetric-unary": SymmetricUnary,
    "optimized-unary": OptimizedUnary,
    "binary-hashing": partial(_hashing, q=2),
    "local-hashing": partial(_hashing, q=3),
    "string-hashing": _of_strings,
    "square-wave": lambda items, weights: SquareWave(items, 1, weights),
    "wide square-wave": lambda items, weights: SquareWave(items, 3, weights),
    "subset-selection": SubsetSelection,
}
EXAMPLES: Final = tuple(_EXAMPLES)


def example(name: str, *, items: int = 6, odds: ResponseWeights | None = None) -> Mechanism:
    """Return a mechanism, by default over six items with weights 3 : 1."""
    return _EXAMPLES[name](items, odds or ResponseWeights(true=3, other=1))


class Scripted(np.random.Generator):
    """A generator that returns given draws in order."""

    def __init__(self, *draws: Any) -> None:
        super().__init__(np.random.PCG64(0))
        self._draws = [np.asarray(draw) for draw in draws]

    def integers(self, low: Any, high: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Return the next draw, and check that its shape and range fit the request."""
        draw = self._draws.pop(0)
        assert np.broadcast_shapes(draw.shape, options["size"]) == draw.shape
        assert (low <= draw).all()
        assert (draw < high).all()
        return draw.astype(options["dtype"])


class RowByRow(np.random.Generator):
    """A generator with a stream for each row, so that draws do not depend on the other rows."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(np.random.PCG64(0))
        self._streams = [np.random.default_rng(row) for row in rows]

    def integers(self, low: Any, high: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Draw each row from its stream."""
        rows, *rest = np.atleast_1d(options.pop("size")).tolist()
        if not rows:  # no coin was left undecided
            return np.empty((0, *rest), dtype=np.int64)
        assert len(self._streams) == rows
        return np.stack(
            [stream.integers(low, high, size=tuple(rest), **options) for stream in self._streams]
        )

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """Permute each row by its stream."""
        assert (1, None) == (axis, out)
        assert len(self._streams) == len(x)
        return np.stack(
            [stream.permuted(row) for stream, row in zip(self._streams, x, strict=True)]
        )
