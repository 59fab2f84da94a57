"""Specifications of mechanisms whose values are reported in several views."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, get_args

from common.protocols import DigitMechanismName
from common.task.specs import (
    MAX_DIMENSIONS,
    RangedSpec,
    ReportBytes,
    check_choice,
    check_int_range,
)

MAX_RADICES: Final = 16
"""Maximum number of digits of a number."""
MAX_RADIX: Final = 65536
MAX_POINTS: Final = 2**24
"""Maximum number of points that numbers are rounded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitSpec(RangedSpec):
    """
    Digits of one number, or of several, without local noise.

    A number is rounded at random, without bias, to one of N equidistant points from one end of the
    range to the other, N being the product of the radices. Every digit of the point's number is a
    view, the most significant first, number by number.
    """

    noiseless: ClassVar[Literal[True]] = True

    name: DigitMechanismName
    report_bytes: ReportBytes
    radices: tuple[int, ...]
    """Number of values of each digit, the most significant first."""
    numbers: int = 1
    """How many numbers a person has."""

    def __post_init__(self) -> None:
        super(DigitSpec, self).__post_init__()  # slots=True made another class
        check_choice("mechanism", self.name, get_args(DigitMechanismName))
        check_int_range("the number of radices", len(self.radices), 1, MAX_RADICES)
        for radix in self.radices:
            check_int_range("a radix", radix, 2, MAX_RADIX)
        check_int_range("the product of the radices", self.points, 2, MAX_POINTS)
        check_int_range("numbers", self.numbers, 1, MAX_DIMENSIONS)

    @property
    def points(self) -> int:
        """N: number of points."""
        return math.prod(self.radices)

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Do nothing: the spec itself states how many numbers there are."""

    def view_sizes(self, domain_size: int, groups: int) -> tuple[int, ...]:
        """Return the radices, for each of the numbers."""
        del domain_size, groups
        return self.radices * self.numbers

    def domain_size_of(self, view_sizes: Sequence[int]) -> int:
        """Return how many numbers a person has."""
        del view_sizes
        return self.numbers
