"""The screen of whoever runs a command, if there is one."""

import os
import sys
import webbrowser
from typing import Final

_SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def show_in_browser(address: str) -> bool:
    """Open a page in a browser with windows; say whether there is a screen to show it on."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in _SCREENS):
        return False  # what would start is a browser in this very terminal
    return webbrowser.open(address)
