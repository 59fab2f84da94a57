"""The screen of whoever runs a command, if there is one."""

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

_SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def terminal(*, stderr: bool = False) -> Console:
    """
    Give the terminal that commands print to; no name in colons becomes a picture there.

    Two labels that differ look different.
    """
    return Console(stderr=stderr, emoji=False)


def show_in_browser(address: str) -> bool:
    """Open a page in a browser with windows; say whether there is a screen to show it on."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in _SCREENS):
        return False  # what would start is a browser in this very terminal
    return webbrowser.open(address)


@contextmanager
def private_opener() -> Iterator[Callable[[str], bool]]:
    """
    Give what opens a page whose address is a secret, as `show_in_browser` does, within the block.

    A browser's command line can be read by every user of the machine. So what stands there is a
    file that only this user can read, and that leads to the page.
    """
    with TemporaryDirectory(prefix="shuffledp-") as folder:  # nobody else's, as is all within

        def show(address: str) -> bool:
            where = html.escape(address)
            page = Path(folder) / "open.html"
            page.touch(mode=0o600)
            page.write_text(
                '<!doctype html>\n<meta charset="utf-8">\n<title>shuffledp</title>\n'
                f'<meta http-equiv="refresh" content="0; url={where}">\n'
                f'<a href="{where}">The page</a>\n',
                encoding="utf-8",
            )
            return show_in_browser(page.as_uri())

        yield show
