"""The terminal and the browser of the user who runs a command."""

import html
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def terminal(*, stderr: bool = False) -> Console:
    """Return the terminal that commands print to; without emoji, so that labels stay distinct."""
    return Console(stderr=stderr, emoji=False)


def show_in_browser(address: str) -> bool:
    """Open a page in a graphical browser; return whether there is a display."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in _DISPLAYS):
        return False  # a browser would start in this very terminal
    return webbrowser.open(address)


@contextmanager
def private_opener() -> Iterator[Callable[[str], bool]]:
    """
    Yield a function that opens a page whose address is secret, as `show_in_browser` does.

    Every user of the machine can read a browser's command line. So it names a file that only this
    user can read, which redirects to the page.
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
