"""
What an audit knows of a mechanism apart from its code: distributions, test values, poisoning.

Each family of mechanisms has a file in this folder, whose `FAMILIES` name the class of each
mechanism. Scenarios call a family's methods and never ask which mechanism it has. A method that a
family lacks raises NotCoveredError: no other family's figures are taken for it.
"""

import math
from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.mechanisms.base import Mechanism, Randomizer, Reports, Vector
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.messages.submission import Value
from shuffledp.common.task.task import Task
from shuffledp.deploy.tasks.value_parser import joined, value_of
from shuffledp.user_agent.contribution import encoder_for

Items = NDArray[np.int64]
AnyRandomizer = TypeVar("AnyRandomizer", bound=Randomizer)
AnyMechanism = TypeVar("AnyMechanism", bound=Mechanism)

_DRAW_SIZE: Final = 2_000_000
"""Maximum total of numbers, keys or items in one draw."""
_REPORT_DIVISOR: Final = 30
"""Divisor of the number of trials, because reports on numbers and pairs are slow to draw."""
_MIN_REPORTS: Final = 80_000


class NotCoveredError(ShuffleDpError):
    """The audit has no reference distribution or attack for a task's mechanism."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(f"The audit has no reference for the mechanism {mechanism}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportDistribution:
    """Probabilities that a value is supported by a report on it, by another report, by a dummy."""

    own: float
    other: float
    dummy: float
    both: float = 0.0
    """Probability that a report supports its value and one given other value."""
    far_only: bool = False
    """Whether `other` applies only between the first and the last item."""

    @classmethod
    def of_response(
        cls, power: float, answers: int, *, other: float | None = None
    ) -> "SupportDistribution":
        """
        Return that of randomized response at e^ε = `power`, which may be infinite [KBR16].

        With `other`, a report supports another value by chance, independently.
        """
        own = 1 / (1 + (answers - 1) / power)
        if other is None:
            return cls(own=own, other=1 / (power + answers - 1), dummy=1 / answers)
        return cls(own=own, other=other, dummy=1 / answers, both=own * other)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportPart:
    """One part of each report, with its distribution; parts are independent."""

    name: str
    cells: Items
    """Cell of each report, shape (n,)."""
    chances: Vector
    """Probability of each cell under each distribution; shape (distributions, cells)."""
    which: Items | None = None
    """Row of `chances` for each report, shape (n,); None: the first row for all."""


@dataclass(frozen=True)
class Family(ABC, Generic[AnyRandomizer]):
    """The reference for a task's mechanism."""

    task: Task
    mechanism: AnyRandomizer

    @property
    def spec(self) -> Any:  # noqa: ANN401  # as different as the mechanisms
        """The mechanism's parameters in the task."""
        return self.task.mechanism

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """The pairs of values that are easiest to distinguish."""
        raise self._unknown()

    @property
    def usual_value(self) -> Value:
        """A valid text, or a valid value whose numbers lie between grid points."""
        return self.worst_values[0][0]

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield the independent parts of reports on one value; none if they are too many."""
        raise self._unknown()

    def reports_each(self, games: int) -> int:
        """Return the number of reports to draw on each value, for `games` trials of a game."""
        return max(_MIN_REPORTS, games // _REPORT_DIVISOR)

    def draw(self, value: Value, count: int, rng: Generator) -> Reports:
        """Draw `count` reports on one value as devices do."""
        held = value_of(self.task, value) if isinstance(value, int) else value
        encoded = encoder_for(self.task, None)(held, rng)
        # A report on one item can have a bit for each item of the task.
        size = max(8, self.task.domain_size, self.mechanism.report_dtype.itemsize)
        together = max(1, _DRAW_SIZE // size)
        parts = [min(together, count - start) for start in range(0, count, together)]
        draws = (self.mechanism.randomize(joined([encoded] * part), rng) for part in parts)
        return np.concatenate([*draws])

    def log_likelihood(self, value: Value, reports: Reports) -> Vector:
        """Return the log likelihood of n users' reports under a value, up to a constant; (n,)."""
        total = np.zeros(len(reports) // self.task.own_reports)
        for part in self.report_parts(value, reports):
            with np.errstate(divide="ignore"):
                logs = np.log(part.chances)
            total += logs[0 if part.which is None else part.which, part.cells]
        return total

    def crafted_numbers(self) -> tuple[Reports, float] | None:
        """
        Return the report, shape (1,), of several that moves a mean most, and by how much.

        In half ranges over the number of users. None where a user sends one report.
        """
        return None

    def less_revealing(self, local_epsilon: str) -> str:
        """Return the change to a task that makes its reports reveal less, as an instruction."""
        return "Lower local_epsilon"

    def _unknown(self) -> NotCoveredError:
        return NotCoveredError(self.task.mechanism.name)


class ItemFamily(Family[AnyMechanism]):
    """The reference for a mechanism for items: by default none, as for an unknown mechanism."""

    most_users: int = 200_000
    """Maximum number of users whose reports are simulated."""
    supports_items: bool = True
    """Whether the estimator counts the reports that support each item, which can be poisoned."""

    @property
    def support(self) -> SupportDistribution:
        """The task's probabilities, from ε by the papers' formulas."""
        raise self._unknown()

    @property
    def n_seeds(self) -> int:
        """Number of equally likely seeds of a report with a field `seed`."""
        raise self._unknown()

    @property
    def power(self) -> float:
        """e^ε, which may be infinite."""
        return math.exp(self.task.local_epsilon)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector] | None:
        """
        Return the places that reports on a value name, shape (n,), and the chances of each place.

        The value None stands for dummies. None if reports name no place, or all of them the same.
        """
        return None

    def chances_around(self, places: int, first: int | None, width: int = 1) -> Vector:
        """Return each place's chance: even but for `width` places, which share that of support."""
        if first is None:
            return np.ones(places)
        own = self.support.own
        chances = np.full(places, (1 - own) / (places - width))
        chances[first : first + width] = own / width
        return chances

    def level_of(self, reports: Reports) -> Items:
        """Return the level of each report, shape (n,): 0 unless reports have levels."""
        return np.zeros(len(reports), dtype=np.int64)

    @property
    def dummy_places(self) -> Vector:
        """Relative probability of each place that a dummy names, if each names an item."""
        return np.ones(self.task.domain_size)

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        return ((0, self.task.domain_size - 1),)

    def less_revealing(self, local_epsilon: str) -> str:
        current = rounded_up(self.task.local_epsilon)
        return f"Lower local_epsilon, for example from {current} to {local_epsilon}"

    # --- poisoning: weights of reports for distinct targets, shape (r,) --------------------------

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        """Return the report, shape (1,), that raises targets most above the mean of all items."""
        raise self._unknown()

    def negative(self, targets: Items) -> Reports | None:
        """Return the report, shape (1,), that lowers a target most; None if none lowers any."""
        return None

    def uniform(self, count: int, rng: Generator) -> Reports:
        """Draw valid reports uniformly [CJG21]: by default dummies."""
        return self.mechanism.dummies(count, rng)

    def uniform_weight(self, r: int) -> float:
        """Return the mean weight of a uniform report for r targets."""
        return r * self.support.dummy

    def heaviest(self, r: int) -> float:
        """Return the maximum weight of a report for r targets."""
        return float(r)

    def spread(self, r: int) -> float:
        """Return the range of the weight of reports that are drawn together."""
        return self.heaviest(r)

    def counted(self, reports: Reports) -> Vector:
        """Return as what each report counts; shape (n,)."""
        return np.ones(len(reports))

    def supported(self, reports: Reports, targets: Items) -> Vector:
        """Return the weight of each report; shape (n,). Cost: a pass per target."""
        held = np.zeros(len(reports))
        for target in targets.tolist():
            held += self.mechanism.supports(reports, target)
        return held


Families = Mapping[type, type[Family[Any]]]
"""Families by the class of each mechanism."""
