"""A TOML file that somebody else wrote: settings, a task's draft. Read within bounds."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from common.errors import ShuffleDpError

_MOST_PARTS: Final = 32
"""Parts of a dotted key: tomllib's memory grows with the square of them, and no key has three."""
_LONG_KEY: Final = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_PARTS},}}"""
)

_PLACE: Final = re.compile(r"\(at line \d+, column \d+\)|\(at end of document\)")


def read_toml(path: Path, refusal: type[ShuffleDpError], *, most_bytes: int) -> dict[str, Any]:
    """
    Read a file's keys.

    Args:
        path: Of the file.
        refusal: The error that says what is wrong.
        most_bytes: Longer files are refused unread.

    Raises:
        refusal: The file cannot be read, is too long, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > most_bytes:
        raise refusal(f"{path} is too long; at most {most_bytes} bytes are read")
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
        if _LONG_KEY.search(text):
            raise refusal(f"a key of {path} has too many parts; at most {_MOST_PARTS} are read")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: numbers of thousands of digits too
        place = _PLACE.search(str(error))  # and no more of it: it may quote the file
        raise refusal(f"{path} is not TOML{' ' + place[0] if place else ''}") from error
