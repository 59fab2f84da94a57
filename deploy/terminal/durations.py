"""Format times and durations for pages and terminals, and parse durations."""

import math
import re
from collections.abc import Sequence
from typing import Final

from shuffledp.common.dates import utc
from shuffledp.common.errors import TaskError

DAY: Final = 86_400
_UNITS: Final = ((DAY, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_COARSE: Final = 2
"""Least count of a unit that is shown without the next smaller unit."""
_YEAR: Final = 365 * DAY
_DURATION: Final = re.compile(r"(-?[0-9]{1,9}) (week|day|hour|minute|second)s?")


def parse_duration(name: str, text: object) -> int:
    """Parse a key's whole number and unit, such as 6 hours, to seconds; raise TaskError."""
    parts = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        raise TaskError(
            f'{name} must be a whole number of minutes, hours, days or weeks, such as "6 hours"'
        )
    units = ((7 * DAY, "week"), *_UNITS)
    return int(parts[1]) * next(size for size, unit in units if unit == parts[2])


def format_time(seconds: float, clock: str = "%H:%M") -> str:
    """Format a Unix time in UTC to the minute, or as seconds if it is outside the calendar."""
    return utc(seconds, f"%-d %B %Y, {clock}")


def format_times(moments: Sequence[float]) -> list[str]:
    """Format Unix times, all of them to the second if two different ones share a minute."""
    texts = list(map(format_time, moments))
    if len(set(texts)) == len(set(moments)):
        return texts
    return [format_time(moment, "%H:%M:%S") for moment in moments]


def format_duration(seconds: float) -> str:
    """Format a duration in one unit, or in two if the larger count is 1: 1 hour 5 minutes."""
    whole = max(0, math.floor(seconds))
    place = next(place for place, (size, _) in enumerate(_UNITS) if whole >= size or size == 1)
    size, unit = _UNITS[place]
    number, rest = divmod(whole, size)
    smaller, smaller_unit = _UNITS[min(place + 1, len(_UNITS) - 1)]
    two_units = number < _COARSE and rest >= smaller
    return _count(number, unit) + f" {_count(rest // smaller, smaller_unit)}" * two_units


def format_range(soonest: float, latest: float) -> str:
    """Format a range in one unit, rounded outwards: 3 to 5 minutes; above a year, leave it open."""
    if soonest > _YEAR:
        return "more than a year"
    if latest > _YEAR:
        return f"{format_duration(soonest)} or much more"
    size, unit = next(each for each in _UNITS if latest >= _COARSE * each[0] or each is _UNITS[-1])
    low, high = math.floor(soonest / size), math.ceil(latest / size)
    return _count(high, unit) if low == high else f"{low:,} to {_count(high, unit)}"


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" + "s" * (number != 1)
