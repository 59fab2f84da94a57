"""Checks of a task's fields: each names the field and the rule, and raises TaskError."""

from common.errors import TaskError


def within(name: str, value: int, least: int, most: int) -> None:
    """Check a whole number."""
    if type(value) is not int:
        raise TaskError(f"{name} must be a whole number")
    if not least <= value <= most:
        raise TaskError(f"{name} is {value}; it must lie between {least} and {most}")


def between(name: str, value: float, low: float, high: float, *, or_high: bool = False) -> None:
    """Check a real number above low and below high, or with or_high at most high."""
    if not (low < real(name, value) < high or (or_high and value == high)):
        most = "at most" if or_high else "below"
        raise TaskError(f"{name} is {value}; it must be above {low} and {most} {high}")


def real(name: str, value: float) -> float:
    """Return a number that is a float: JSON's 2 and 2.0 would be two forms of one task."""
    if type(value) is not float:
        raise TaskError(f"{name} must be a number with a decimal point")
    return value


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Check a word."""
    if value not in allowed:
        raise TaskError(f"{name} must be one of: {', '.join(allowed)}")


def printable(name: str, text: str, most: int) -> None:
    """Check a short name in printable ASCII; it may be empty."""
    if type(text) is not str or not (text.isascii() and text.isprintable()):
        raise TaskError(f"{name} must be printable ASCII text")
    if text != text.strip():
        raise TaskError(f"{name} begins or ends with a blank")
    if len(text) > most:
        raise TaskError(f"{name} has {len(text)} characters; it may have at most {most}")
