"""Terminal output for tests."""

import io
from collections.abc import Callable

from rich.console import Console


def printed(show: Callable[[Console], object], width: int = 160) -> str:
    """Return the output on a terminal of this width."""
    written = io.StringIO()
    show(Console(file=written, width=width))
    return written.getvalue()
