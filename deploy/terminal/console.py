"""Terminal output, and pages shown in a browser."""

import html
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def terminal(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console for command output, without emoji codes, which would change labels."""
    return Console(stderr=stderr, quiet=quiet, emoji=False)


def print_written(paths: Iterable[Path | None], console: Console) -> None:
    """Print the names of the files that a command has written."""
    for path in filter(None, paths):
        console.print(f"Written to {path}.", markup=False, soft_wrap=True)


def show_in_browser(address: str) -> bool:
    """Open a page in a graphical browser; return False if there is none."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in _DISPLAYS):
        return False  # a text browser would start in this terminal
    return webbrowser.open(address)


@contextmanager
def private_opener() -> Iterator[Callable[[str], bool]]:
    """
    Yield a function that opens a secret address through a private file that redirects to it.

    All users of a machine can read a browser's command line.
    """
    with TemporaryDirectory(prefix="shuffledp-") as folder:  # readable by this user alone

        def show(address: str) -> bool:
            url = html.escape(address)
            page = Path(folder) / "open.html"
            page.touch(mode=0o600)
            page.write_text(
                '<!doctype html>\n<meta charset="utf-8">\n<title>shuffledp</title>\n'
                f'<meta http-equiv="refresh" content="0; url={url}">\n'
                f'<a href="{url}">The page</a>\n',
                encoding="utf-8",
            )
            return show_in_browser(page.as_uri())

        yield show
