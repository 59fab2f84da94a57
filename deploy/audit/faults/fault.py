"""What a fault is known by."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    name: str
    says: str
    """What is wrong with the code, in words."""
    scenario: str
    """Which must see it."""
    check: str
    """What that says, or a part of it."""
    plant: Callable[[], AbstractContextManager[None]]
