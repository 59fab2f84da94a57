"""
Whether a report that is made alone, as every device makes its own, is made as many at once are.

All tests of laws draw many reports together. Here the same draws are handed out twice, to many
reports together and to each by itself, and the reports must be the same, byte for byte.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports
from common.mechanisms.registry import mechanism_of
from common.task.task import Task
from deploy.audit.checks import Checks

_ROWS: Final = 1000
_SLOW_ROWS: Final = 100
_REPEATS: Final = 6
_SCRIPTS: Final = 50
"""Scripts that are tried for one in which no row draws more than the others."""
_LONG: Final = 500
"""Bytes of a report beyond which fewer are made."""


class Script(np.random.Generator):
    """A generator whose bounded integers are written beforehand, row by row."""

    def __init__(self, seed: int, rows: int, row: int | None = None) -> None:
        """
        Open the script.

        Args:
            seed: Of the script.
            rows: Reports that it is written for.
            row: The one that it is read for; None for all of them.
        """
        super().__init__(np.random.PCG64(seed))
        self._seed, self._rows, self._row, self._calls = seed, rows, row, 0
        self.strays = 0
        """Draws of some rows alone, such as a coin's that its first bits left undecided."""

    def integers(  # type: ignore[override]  # numpy's has an overload for every type
        self,
        low: int,
        high: int | None = None,
        size: Any = None,  # noqa: ANN401  # as numpy's
        dtype: Any = np.int64,  # noqa: ANN401  # as numpy's
        endpoint: bool = False,  # noqa: FBT001, FBT002  # as numpy's
    ) -> NDArray[Any]:
        """Read the next integers; what is drawn of some rows alone is 0."""
        start, end = (0, low) if high is None else (low, high)
        shape = (size,) if isinstance(size, int | np.integer) else tuple(size or ())
        mine = self._rows if self._row is None else 1
        if not shape or shape[0] != mine:
            self.strays += int(0 not in shape)  # of no row nothing is drawn
            return np.full(shape, start, dtype=dtype)
        self._calls += 1
        chances = np.random.default_rng([self._seed, self._calls]).random((self._rows, *shape[1:]))
        span = int(end) - int(start) + int(endpoint)
        drawn = (chances * span).astype(np.uint64).astype(dtype) + np.asarray(start, dtype=dtype)
        found: NDArray[Any] = drawn if self._row is None else drawn[self._row : self._row + 1]
        return found


def check_singly(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Make reports and dummies together and one by one, by the same script."""
    mechanism = mechanism_of(task)
    rows = _ROWS if mechanism.report_dtype.itemsize <= _LONG else _SLOW_ROWS
    values = np.arange(rows, dtype=np.int64) % task.domain_size
    values[-1] = task.domain_size - 1
    # Of a large domain each value comes once in a script, and noise does not always show.
    scripts = _REPEATS if task.domain_size > rows // _REPEATS else 1
    for _ in range(scripts):
        _note(checks, task, "report", _same(mechanism.randomize, values, rng))
    if task.composition.dummy_laws:
        dummies = _same(lambda some, script: mechanism.dummies(len(some), script), values, rng)
        _note(checks, task, "dummy", dummies)


def _note(checks: Checks, task: Task, what: str, same: bool | None) -> None:  # noqa: FBT001  # what is noted
    if same is not None:
        checks.must(f"{task.mechanism.name}: a {what} made alone is as one of many", same)


def _same(
    made: Callable[[NDArray[np.int64], np.random.Generator], Reports],
    values: NDArray[np.int64],
    rng: np.random.Generator,
) -> bool | None:
    """Compare; with fewer reports where some always draw more, None where even one does."""
    while rows := len(values):
        for _ in range(_SCRIPTS):
            seed = int(rng.integers(2**32))
            script = Script(seed, rows)
            together = made(values, script)
            if not script.strays:
                alone = [
                    made(values[row : row + 1], Script(seed, rows, row)) for row in range(rows)
                ]
                return together.tobytes() == np.concatenate(alone).tobytes()
        values = values[rows - rows // 2 :]
    return None
