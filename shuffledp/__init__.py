"""
Shuffle-model differential privacy with three parties.

For notebooks, `import shuffledp as sdp` has five functions, which docs/researchers/reference.md
describes; all else is in the packages below.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shuffledp.lab.facade import collect, epsilon, plan, read, simulate

__all__ = ["collect", "epsilon", "plan", "read", "simulate"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any of these functions
    """Load the functions for notebooks at their first use: parties import this module too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("shuffledp.lab.facade"), name)


def __dir__() -> list[str]:
    """List the functions for notebooks before they are loaded."""
    return [*globals(), *__all__]


def check_name(module: str) -> None:
    """Raise ImportError unless a room is imported below this package: `shuffledp.common`.

    In a checkout the folder `common` stands at the root too, so that Python would find it under a
    second name, and each class would exist twice. Called by every room.
    """
    if not module.startswith(f"{__name__}."):
        raise ImportError(f"there is no package {module!r}: import {__name__}.{module}")
