"""Dates in messages."""

from datetime import UTC, datetime


def utc(seconds: float, style: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format seconds since 1970 as a date in UTC, or as seconds outside the calendar."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):{style}} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:,.0f} seconds after 1970"
