"""
Putting other code in the place of deployed code, for as long as a block runs.

In this process alone, and in memory alone: no file is touched.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

_PROJECT: Final = ("common", "user_agent", "shuffler", "analyzer", "deploy")


@contextmanager
def function(original: Callable[..., Any], other: Callable[..., Any]) -> Iterator[None]:
    """Put a function in the place of another, under every name that the project has for it."""
    places = [
        (module, name)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").partition(".")[0] in _PROJECT
        and not module.__name__.startswith(__package__ or "")
        for name, value in list(vars(module).items())
        if value is original
    ]
    for module, name in places:
        setattr(module, name, other)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)


@contextmanager
def attribute(owner: type | ModuleType, name: str, other: Any) -> Iterator[None]:
    """Put something in the place of what a class, or one module alone, knows by a name."""
    with patch.object(owner, name, other):
        yield


@contextmanager
def both(
    first: AbstractContextManager[None], second: AbstractContextManager[None]
) -> Iterator[None]:
    """Put two things in place."""
    with first, second:
        yield
