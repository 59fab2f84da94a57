"""Single fields of a message: each check names the field and the public number that broke it."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from common.errors import WireError

W = TypeVar("W", bound=str)


def word(name: str, field: str, allowed: Sequence[W]) -> W:
    """Read one of a list of words."""
    for word in allowed:
        if word == field:
            return word
    raise WireError(f"{name} must be one of {', '.join(allowed)}")


def exactly(name: str, field: bytes, length: int) -> bytes:
    """Read bytes of one length."""
    if len(field) != length:
        raise WireError(f"{name} has {len(field)} bytes; it must have {length}")
    return field


def at_most(name: str, field: bytes, length: int) -> bytes:
    """Read bytes of at most a length."""
    if len(field) > length:
        raise WireError(f"{name} has {len(field)} bytes; it may have at most {length}")
    return field


def short(name: str, field: str, length: int) -> str:
    """Read text of at most so many characters."""
    if len(field) > length:
        raise WireError(f"{name} has {len(field)} characters; it may have at most {length}")
    return field


def amount(name: str, field: float, most: float) -> float:
    """Read a number from 0 to most."""
    if not 0 <= field <= most:
        raise WireError(f"{name} is {field}; it must lie between 0 and {most}")
    return field


def count(name: str, field: int, most: int) -> int:
    """Read a whole number up to most."""
    if field > most:
        raise WireError(f"{name} is {field}; it may be at most {most}")
    return field


def whole(name: str, field: int, most: int) -> int:
    """Read a whole number from 1 to most."""
    if not 1 <= field <= most:
        raise WireError(f"{name} is {field}; it must lie between 1 and {most}")
    return field


def figures(name: str, fields: Sequence[float], least: float, most: float) -> NDArray[np.float64]:
    """Read many numbers from least to most; what is none is outside."""
    read = np.array(fields, dtype=np.float64)
    outside = read[~((least <= read) & (read <= most))]
    if len(outside):
        raise WireError(f"{name} is {outside[0]}; it must lie between {least} and {most}")
    return read
