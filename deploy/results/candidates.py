"""Read candidate texts from a file."""

from pathlib import Path
from typing import Final

from common.errors import SettingsError
from common.runtime.validation import read_file
from common.task.specs import normalize

MAX_CANDIDATES: Final = 100_000
_MAX_BYTES: Final = 16 * 1024 * 1024


def read_candidates(path: Path) -> tuple[str, ...]:
    """
    Read candidates, one per line of a UTF-8 file, and normalize them as devices do.

    A blank line is the empty text, which devices send too, except after the last line's end.
    """
    try:
        text = read_file(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n") if text else ()
    texts = tuple(normalize(line) for line in lines)
    if not 1 <= len(texts) <= MAX_CANDIDATES:
        raise SettingsError(
            f"{path} has {len(texts)} candidates; it must have 1 to {MAX_CANDIDATES}"
        )
    if repeated := len(texts) - len(set(texts)):
        raise SettingsError(f"{path} repeats {repeated} candidates; each must appear once")
    return texts
