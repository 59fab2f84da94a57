"""Times in words, for pages and terminals: moments, and durations as exact as who waits wants."""

import math
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_COARSE: Final = 2
"""From this many of a unit on, the next smaller one is not told."""
_FOREVER: Final = 365 * 86400


def moment(seconds: float) -> str:
    """Write a time, given in seconds since 1970 UTC, to the minute; where there is a calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %Y, %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:,.0f} seconds after 1970"


def duration(seconds: float) -> str:
    """Say how long, in one unit, or two where the larger is one: 1 hour 5 minutes, 3 days."""
    whole = max(0, math.floor(seconds))
    for place, (size, name) in enumerate(_UNITS):
        number, rest = divmod(whole, size)
        if number == 0 and size > 1:
            continue
        told = _many(number, name)
        if number < _COARSE and size > 1:
            smaller, unit = _UNITS[place + 1]
            if rest // smaller:
                told += " " + _many(rest // smaller, unit)
        return told
    raise AssertionError  # the loop ends at seconds


def between(soonest: float, latest: float) -> str:
    """Say a range, its ends rounded outwards to what tells them apart: 3 to 5 minutes."""
    if soonest > _FOREVER:
        return "more than a year"
    if latest > _FOREVER:
        return f"{duration(soonest)} or much more"
    size, name = next(
        (size, name) for size, name in _UNITS if latest >= _COARSE * size or size == 1
    )
    low, high = math.floor(soonest / size), math.ceil(latest / size)
    return _many(high, name) if low == high else f"{low:,} to {_many(high, name)}"


def _many(number: int, unit: str) -> str:
    return f"{number:,} {unit}" + "s" * (number != 1)
