"""Specifications of mechanisms whose values are reported in several views."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import DigitMechanismName, TableMechanismName
from shuffledp.common.task import domain_spec, specs

MAX_RADICES: Final = 16
"""Maximum number of digits of a number."""
MAX_RADIX: Final = 65536
MAX_POINTS: Final = 2**24
"""Maximum number of points that numbers are rounded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitSpec(specs.RangedSpec):
    """
    Digits of one number, or of several, without local noise.

    A number is rounded at random, without bias, to one of N equidistant points from one end of the
    range to the other, N being the product of the radices. Every digit of the point's number is a
    view, the most significant first, number by number.
    """

    noiseless: ClassVar[Literal[True]] = True

    name: DigitMechanismName
    report_bytes: specs.ReportBytes
    radices: tuple[int, ...]
    """Number of values of each digit, the most significant first."""
    numbers: int = 1
    """How many numbers a person has."""

    def __post_init__(self) -> None:
        super(DigitSpec, self).__post_init__()  # slots=True made another class
        specs.check_int_range("the number of radices", len(self.radices), 1, MAX_RADICES)
        for radix in self.radices:
            specs.check_int_range("a radix", radix, 2, MAX_RADIX)
        specs.check_int_range("the product of the radices", self.points, 2, MAX_POINTS)
        specs.check_int_range("numbers", self.numbers, 1, specs.MAX_DIMENSIONS)

    @property
    def points(self) -> int:
        """N: number of points."""
        return math.prod(self.radices)

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Do nothing: the spec itself states how many numbers there are."""

    def view_sizes(self, domain_size: int, groups: int) -> tuple[int, ...]:
        return self.radices * self.numbers

    def domain_size_of(self, view_sizes: Sequence[int]) -> int:
        return self.numbers


MAX_TABLES: Final = specs.MAX_ATTRIBUTES * (specs.MAX_ATTRIBUTES + 1) // 2
MAX_TABLE_ATTRIBUTES: Final = 2
NO_MORE_ATTRIBUTES: Final = (
    f"a table may have at most {MAX_TABLE_ATTRIBUTES} attributes: ask for every pair of them, or "
    "join two into one attribute whose labels name both values"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec(specs.Spec):
    """The attributes of a person, and the tables of one or two of them that are asked for."""

    noiseless: ClassVar[Literal[True]] = True

    name: TableMechanismName
    attributes: tuple[domain_spec.AttributeSpec, ...]
    tables: tuple[tuple[int, ...], ...] = field(metadata={"key": "views"})
    """The attributes of each table by number, ascending. Cells count the last one fastest."""
    report_bytes: specs.ReportBytes

    def __post_init__(self) -> None:
        specs.check_fields(self)
        number = len(self.attributes)
        specs.check_int_range("the number of attributes", number, 2, specs.MAX_ATTRIBUTES)
        if len({*self.attribute_names}) < number:
            raise TaskError("two attributes have the same name")
        for table in self.tables:
            if len(table) > MAX_TABLE_ATTRIBUTES:
                raise TaskError(f"a table has {len(table)} attributes; {NO_MORE_ATTRIBUTES}")
            for attribute in table:
                specs.check_int_range("the number of a table's attribute", attribute, 0, number - 1)
            if not table or table != tuple(sorted({*table})):
                names = ", ".join(self.attribute_names[each] for each in table) or "nothing"
                raise TaskError(f"a table is of {names}; it must be of one or two different ones")
        if len({*self.tables}) < len(self.tables):
            raise TaskError("two tables have the same attributes")
        if missing := {*range(number)} - {each for table in self.tables for each in table}:
            name = self.attribute_names[min(missing)]
            raise TaskError(f"{name} is in no table; each attribute must be in one")
        cells = sum(self.view_sizes())
        specs.check_int_range("the number of all cells", cells, 2, specs.MAX_DOMAIN_SIZE)

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of a person's attributes."""
        return tuple(each.name for each in self.attributes)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The number of values of each attribute of every table."""
        return tuple(tuple(self.attributes[each].size for each in table) for table in self.tables)

    def view_sizes(self, domain_size: int = 0, groups: int = 1) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    def domain_size_of(self, view_sizes: Sequence[int]) -> int:
        return len(self.attributes)

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Raise TaskError for labels: they belong to attributes."""
        if labels:
            raise TaskError(
                "a task for tables has no labels of its own: state them in its attributes"
            )
