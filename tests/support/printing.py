"""Text of a terminal, for tests."""

import io
from collections.abc import Callable

from rich.console import Console


def printed(show: Callable[[Console], object], width: int = 160) -> str:
    """Return what is shown on a terminal of a width."""
    written = io.StringIO()
    show(Console(file=written, width=width))
    return written.getvalue()
