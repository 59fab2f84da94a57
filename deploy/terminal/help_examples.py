"""Examples in command help, with line breaks that a shell accepts."""

import re
from textwrap import TextWrapper
from typing import Final

_WRAPPER: Final = TextWrapper(
    76,
    initial_indent="  ",
    subsequent_indent="    ",
    break_on_hyphens=False,
    break_long_words=False,
)


def example(*commands: str) -> str:
    """Format example commands for the `epilog` of a command's help."""
    # A line with only a backspace keeps Typer from rewrapping the rest.
    return f"\b\nExample{'s' * (len(commands) > 1)}:\n" + "\n".join(map(_wrapped, commands))


def _wrapped(command: str) -> str:
    """Wrap a command before its options to a terminal's width, with backslashes."""
    unbroken = re.sub(" (?!--)", "\0", command)
    return " \\\n".join(_WRAPPER.wrap(unbroken)).replace("\0", " ")
