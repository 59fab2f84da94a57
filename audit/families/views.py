"""True reports to several views of a value, hidden by dummies alone: nodes, digits, or cells."""

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final, TypeVar

import numpy as np

from shuffledp.audit.families import family
from shuffledp.audit.families.family import Families, Family, ItemFamily, Items, ReportPart
from shuffledp.audit.families.real_numbers import NumberFamily
from shuffledp.common.mechanisms.base import Reports, Vector
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.numeric.digits import Digits
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.views import ViewMechanism
from shuffledp.common.messages.submission import Value, plain_reports
from shuffledp.deploy.tasks.value_parser import value_of_attributes
from shuffledp.user_agent.contribution import encoder_for

AnyViewMechanism = TypeVar("AnyViewMechanism", bound=ViewMechanism)
_UNUSED: Final = np.random.default_rng(0)
"""Encoding a value of attributes draws nothing."""


class ViewFamily(Family[AnyViewMechanism]):
    """Reports to views whose dummies are uniform."""

    @property
    def _view_shares(self) -> Vector:
        """Share of each view among all dummies."""
        each = np.array([view.dummies.expected_per_user for view in self.task.views])
        return np.asarray(each / each.sum())

    @property
    def dummy_places(self) -> Vector:
        """All items of one view are equally likely."""
        sizes = np.array(self.task.view_sizes)
        return np.repeat(self._view_shares / sizes, sizes)

    @property
    def firsts(self) -> Items:
        """Number of the first item of each view."""
        return self.mechanism.offsets[:-1]

    def items(self, reports: Reports) -> Items:
        """Return the items of each user, view by view, relative to the view: (n, views)."""
        return reports["item"].astype(np.int64).reshape(-1, len(self.firsts)) - self.firsts


class NodePerLevel(ViewFamily[Hierarchy], ItemFamily[Hierarchy]):
    """True nodes at each level."""

    supports_items = False

    @property
    def support(self) -> family.SupportDistribution:
        """The first and the last item share no node."""
        dummy = float(self._view_shares @ (1 / np.array(self.task.view_sizes)))
        return family.SupportDistribution(own=1.0, other=0.0, dummy=dummy, far_only=True)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector] | None:
        """Return the nodes of dummies; users' are all true."""
        return None if value is not None else (reports["item"].astype(np.int64), self.dummy_places)

    def level_of(self, reports: Reports) -> Items:
        return self.mechanism.view_of(reports)


class DigitPerView(ViewFamily[Digits], NumberFamily[Digits]):
    """The digits of one of the two points around a number."""

    @property
    def _places(self) -> Items:
        """Place value of each digit, in points."""
        radices = self.spec.radices
        return np.array([math.prod(radices[place + 1 :]) for place in range(len(radices))])

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield each number's point: beyond the two around it, one of the two, or beyond them."""
        spec, steps = self.spec, self.spec.points - 1
        digits = self.items(reports).reshape(-1, spec.numbers, len(spec.radices))
        inside = ((digits >= 0) & (digits < np.array(spec.radices))).all(axis=2)
        points = np.where(inside, digits @ self._places, -1)
        for number, held in enumerate(self.unit_numbers(value)):
            place = (held + 1) * steps / 2
            down = min(math.floor(place), steps - 1)
            up = place - down
            cells = np.clip(points[:, number] - down, -1, 2) + 1
            chances = np.array([[0.0, 1 - up, up, 0.0]])
            yield ReportPart(name="points", cells=cells, chances=chances)

    def crafted_numbers(self) -> tuple[Reports, float]:
        """Return the largest digit that moves the first number most, and by which share of half."""
        radices = np.array(self.spec.radices)
        weights = (radices - 1) * self._places / (self.spec.points - 1)
        heaviest = int(weights.argmax())
        report = plain_reports(np.array([self.firsts[heaviest] + radices[heaviest] - 1]))
        return report, float(weights[heaviest])


class CellPerTable(ViewFamily[Tables]):
    """True cells of each table of attributes."""

    def _value(self, numbers: Sequence[int]) -> Value:
        attributes, sizes = self.spec.attributes, self.mechanism.attribute_sizes
        held = [number % size for number, size in zip(numbers, sizes, strict=True)]
        return value_of_attributes(attributes, held)

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """Two values without a common cell; attributes differ, so that none stands for another."""
        number = len(self.spec.attributes)
        return ((self._value(range(number)), self._value(range(1, number + 1))),)

    @property
    def usual_value(self) -> Value:
        """A value that differs between attributes that `worst_values` do not tell apart."""
        sizes = self.mechanism.attribute_sizes
        return self._value([number // size for number, size in enumerate(sizes)])

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield each table's cell, relative to all of the table, in the order of a submission."""
        held = encoder_for(self.task, None)(value, _UNUSED)[0].tolist()
        counts = [each.size for each in self.spec.attributes]
        tables = zip(self.spec.tables, self.task.view_sizes, self.items(reports).T, strict=True)
        for table, size, cells in tables:
            right = reduce(lambda cell, a: cell * counts[a] + held[a], table, 0)
            named = np.where((cells >= 0) & (cells < size), cells, size)  # at the end: none of it
            chances = (np.arange(size + 1) == right)[np.newaxis].astype(np.float64)
            yield ReportPart(name="cells", cells=named, chances=chances)

    def gain(self, table: int, n_users: int) -> float:
        """
        Return the users by which one more report on a cell of a table raises the cell's estimate.

        With Q = 1 - 1/r: the report's share Q·Q of what no margin explains, and of each margin the
        table's weight among all tables that have the attribute, by inverse variances.
        """
        mechanism = self.mechanism
        names, cells = mechanism.tables[table], mechanism.sizes[table]
        sizes = [mechanism.attribute_sizes[each] for each in names]
        gain = math.prod(1 - 1 / size for size in sizes) if len(names) > 1 else 0.0
        for name, size in zip(names, sizes, strict=True):
            precisions = {
                place: 1 / (view.size * view.item_variance(n_users))
                for place, view in enumerate(mechanism.views)
                if name in mechanism.tables[place]
            }
            weight = precisions[table] / math.fsum(precisions.values())
            gain += weight * (1 - 1 / size) * size / cells
        return gain


FAMILIES: Final[Families] = {Hierarchy: NodePerLevel, Digits: DigitPerView, Tables: CellPerTable}
