"""True reports to several views of a value, hidden by dummies alone: nodes of levels, or digits."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from audit.families.family import (
    AnyRandomizer,
    Families,
    Family,
    ItemFamily,
    Items,
    ReportPart,
    SupportDistribution,
)
from audit.families.real_numbers import NumberFamily
from common.mechanisms.base import Reports, Vector
from common.mechanisms.hierarchy import Hierarchy
from common.mechanisms.numeric.digits import Digits
from common.messages.submission import Value, plain_reports
from common.task.spec_forms import spec_as
from common.task.view_specs import DigitSpec


class ViewFamily(Family[AnyRandomizer]):
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
        return np.cumsum([0, *self.task.view_sizes[:-1]])


class NodePerLevel(ViewFamily[Hierarchy], ItemFamily[Hierarchy]):
    """True nodes at each level."""

    supports_items = False

    @property
    def support(self) -> SupportDistribution:
        """The first and the last item share no node."""
        dummy = float(self._view_shares @ (1 / np.array(self.task.view_sizes)))
        return SupportDistribution(own=1.0, other=0.0, dummy=dummy, far_only=True)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector] | None:
        """Return the nodes of dummies; users' are all true."""
        return None if value is not None else (reports["item"].astype(np.int64), self.dummy_places)

    def level_of(self, reports: Reports) -> Items:
        return self.mechanism.view_of(reports)


class DigitPerView(ViewFamily[Digits], NumberFamily[Digits]):
    """The digits of one of the two points around a number."""

    @property
    def _spec(self) -> DigitSpec:
        return spec_as(self.task.mechanism, DigitSpec)

    @property
    def _places(self) -> Items:
        """Place value of each digit, in points."""
        radices = self._spec.radices
        return np.array([math.prod(radices[place + 1 :]) for place in range(len(radices))])

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield each number's point: beyond the two around it, one of the two, or beyond them."""
        spec, steps = self._spec, self._spec.points - 1
        items = reports["item"].astype(np.int64).reshape(-1, len(self.firsts)) - self.firsts
        digits = items.reshape(-1, spec.numbers, len(spec.radices))
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
        radices = np.array(self._spec.radices)
        weights = (radices - 1) * self._places / (self._spec.points - 1)
        heaviest = int(weights.argmax())
        report = plain_reports(np.array([self.firsts[heaviest] + radices[heaviest] - 1]))
        return report, float(weights[heaviest])


FAMILIES: Final[Families] = {Hierarchy: NodePerLevel, Digits: DigitPerView}
