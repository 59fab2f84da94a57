"""The ranges that the numbers of a task may have: each check names the number and the rule."""

from common.errors import TaskError


def within(name: str, value: int, least: int, most: int) -> None:
    """
    Check a whole number.

    Raises:
        TaskError: It is no int, or not between least and most.
    """
    if type(value) is not int:
        raise TaskError(f"{name} must be a whole number")
    if not least <= value <= most:
        raise TaskError(f"{name} is {value}; it must lie between {least} and {most}")


def between(name: str, value: float, low: float, high: float, *, or_high: bool = False) -> None:
    """
    Check a real number above low and below high, or with or_high at most high.

    Raises:
        TaskError: It is no float, or outside.
    """
    if not (low < real(name, value) < high or (or_high and value == high)):
        most = "at most" if or_high else "below"
        raise TaskError(f"{name} is {value}; it must be above {low} and {most} {high}")


def real(name: str, value: float) -> float:
    """
    Give a number that is a float: JSON's 2 and 2.0 would be two forms of one task.

    Raises:
        TaskError: It is not.
    """
    if type(value) is not float:
        raise TaskError(f"{name} must be a number with a decimal point")
    return value


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """
    Check a word.

    Raises:
        TaskError: It is not among those allowed.
    """
    if value not in allowed:
        raise TaskError(f"{name} must be one of: {', '.join(allowed)}")
