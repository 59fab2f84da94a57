"""How items arise: ordered buckets of a number, a breakdown, and attributes of one person."""

import math
import sys
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.task import specs
from shuffledp.common.task.labels import check_labels, normalize

Spacing = Literal["equal", "logarithmic", "given"]
Outside = Literal["refuse", "clip"]
_MAX_CHARACTERS: Final = 32
"""Maximum characters of a unit or an attribute's name."""
MAX_GIVEN_EDGES: Final = 65_537
MAX_COMPUTED_BUCKETS: Final = 2**20
"""A device computes all edges, and each takes tens of bytes."""
_DIGITS: Final = 12
_FINE: Final = 50
"""Least width of a bucket, in units of the last digit, for which its edges are rounded."""
GROUP_SEPARATOR: Final = " / "
"""Between the parts of a value, such as a group's name and a label: `DE / flu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesSpec:
    """
    The edges of ordered buckets, from the least number to the largest.

    A bucket holds the numbers from its lower edge up to, but not including, its upper edge; the
    last bucket also holds its upper edge.
    """

    spacing: Spacing = "equal"
    """Buckets of equal width, of equal ratio (`logarithmic`), or between `given` edges."""
    low: float = 0.0
    high: float = 0.0
    """Ends of the range; both 0.0 if the edges are given."""
    buckets: int = 0
    """Number of buckets; 0 if the edges are given."""
    given: tuple[float, ...] = ()
    """All edges in ascending order, one more than buckets."""
    unit: str = ""
    """Unit of the numbers, for display, such as °C."""
    outside: Outside = "refuse"
    """Whether devices refuse numbers outside the range, or count them in the nearest bucket."""

    def __post_init__(self) -> None:
        specs.check_choice("spacing", self.spacing, get_args(Spacing))
        specs.check_choice("outside", self.outside, get_args(Outside))
        specs.check_printable("unit", self.unit, _MAX_CHARACTERS, ascii_only=False)
        low, high = self.low, self.high
        if self.spacing == "given":
            specs.check_int_range("the number of given edges", len(self.given), 3, MAX_GIVEN_EDGES)
            if (low, high, self.buckets) != (0.0, 0.0, 0):
                raise TaskError(
                    f"low is {low}, high is {high} and buckets is {self.buckets}; leave them out, "
                    "since the edges are given"
                )
            for edge in self.given:
                specs.check_end("an edge", edge)
        else:
            if self.given:
                raise TaskError(f'given has {len(self.given)} edges; spacing must then be "given"')
            specs.check_int_range("buckets", self.buckets, 2, MAX_COMPUTED_BUCKETS)
            specs.check_range(low, high)
        if self.spacing == "logarithmic" and low <= 0:
            raise TaskError(f"low is {low}; for logarithmic buckets it must be above 0.0")
        edges = self.edges
        ascending = np.diff(edges) > 0
        if not ascending.all():
            at = int(np.argmin(ascending))
            raise TaskError(
                f"edge {at + 1} is {edges[at]} and edge {at + 2} is {edges[at + 1]}: edges must "
                "ascend, and by enough for floats to tell them apart"
            )

    @property
    def size(self) -> int:
        """Number of buckets."""
        return self.buckets or len(self.given) - 1

    @property
    def edges(self) -> NDArray[np.float64]:
        """
        All edges, ascending, shape (size + 1,). Cost: computed on each access.

        Computed ones are decimal, so that .3 is an edge of tenths, and the same on every machine:
        multiples of 12 significant digits of the larger end if they are equally spaced; else of
        the largest power of ten up to a fiftieth of the narrower neighbour. Edges of buckets that
        are too narrow for that are not rounded.
        """
        if self.spacing == "given":
            return np.array(self.given)
        low, high, number = self.low, self.high, self.buckets + 1
        if self.spacing == "equal":
            edges = np.linspace(low, high, number)
            unit = np.full(number, math.ceil(math.log10(max(abs(low), abs(high)))) - _DIGITS)
        else:
            edges = np.exp(np.linspace(math.log(low), math.log(high), number))
        widths = np.append(np.inf, np.abs(np.diff(edges)))
        narrower = np.maximum(np.minimum(widths, np.roll(widths, -1)), sys.float_info.min)
        if self.spacing == "logarithmic":
            unit = np.floor(np.log10(narrower / _FINE)).astype(np.int64)
        unit = np.clip(unit, -22, 22)  # floats hold powers of ten up to 10^22 exactly
        power = 10.0 ** np.abs(unit)
        scaled = np.where(unit < 0, edges * power, edges / power)
        whole = np.rint(scaled)
        # Floats hold whole numbers below 2^53 exactly; .99 as narrower is itself inexact.
        fine = (np.abs(scaled) < 2**53) & (narrower >= 0.99 * _FINE * 10.0**unit)
        edges = np.where(fine, np.where(unit < 0, whole / power, whole * power), edges)
        edges[0], edges[-1] = low, high
        return edges

    def bucket_of(self, number: float) -> int:
        """
        Return a number's bucket, 0 .. size-1. Run by the user agent.

        Raises ValueRangeError, without the number, if it is not finite, or out of range and
        `outside` is "refuse".
        """
        edges = self.edges
        inside = edges[0] <= number <= edges[-1]
        if not math.isfinite(number):
            raise ValueRangeError("a number must be finite")
        if not (inside or self.outside == "clip"):
            ends = f"{edges[0]:.15g} and {edges[-1]:.15g} {self.unit}".rstrip()
            raise ValueRangeError(f"a number must lie between {ends}")
        return int(np.clip(np.searchsorted(edges, number, side="right") - 1, 0, self.size - 1))


MAX_GROUPS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownSpec:
    """
    A public attribute by which results are broken down, such as a country or a version.

    Items of the task are pairs of group and value: the first `domain_size / len(groups)` items
    belong to the first group. The attribute is randomized together with the value, so it is as
    private as the value.
    """

    attribute: str
    groups: tuple[str, ...]
    """Names of the attribute's values."""

    def __post_init__(self) -> None:
        specs.check_printable("attribute", self.attribute, _MAX_CHARACTERS, ascii_only=False)
        if not self.attribute:
            raise TaskError("attribute is empty; it must name what the groups are, such as country")
        specs.check_int_range("the number of groups", len(self.groups), 2, MAX_GROUPS)
        if len({*self.groups}) < len(self.groups):
            raise TaskError("two groups of the breakdown have the same name")
        _check_parts("group", self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSpec:
    """One of several attributes of a person, and its values: labels, or buckets of a number."""

    name: str
    labels: tuple[str, ...] = ()
    """Names of the values; empty if there are edges."""
    edges: EdgesSpec | None = None

    def __post_init__(self) -> None:
        specs.check_printable("an attribute's name", self.name, _MAX_CHARACTERS, ascii_only=False)
        if not self.name or (self.edges is None) == (not self.labels):
            raise TaskError("each attribute needs a name, and either labels or edges")
        if self.edges is None:
            specs.check_int_range(f"the number of labels of {self.name}", self.size, 2, MAX_GROUPS)
            _check_parts(f"{self.name}'s label", self.labels)

    @property
    def size(self) -> int:
        """Number of values."""
        return self.edges.size if self.edges else len(self.labels)


def _check_parts(noun: str, names: tuple[str, ...]) -> None:
    """Raise TaskError unless names are distinct, normalized, and without the separator."""
    check_labels(names, len(names))
    for place, name in enumerate(names, start=1):
        if GROUP_SEPARATOR in f"{name} " or not name or name != normalize(name):
            raise TaskError(
                f"{noun} {place} of {len(names)} is empty, begins or ends with whitespace, is not "
                f"in Unicode's normal form C, or contains {GROUP_SEPARATOR.strip()!r} between "
                "spaces, which separates the parts of a value"
            )


def group_count(breakdown: BreakdownSpec | None) -> int:
    """Return the number of groups of a breakdown; 1 without a breakdown."""
    return 1 if breakdown is None else len(breakdown.groups)
