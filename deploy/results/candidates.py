"""Read candidate texts from a file."""

from pathlib import Path
from typing import Final

from common.errors import SettingsError
from common.runtime.validation import read_file
from common.task.specs import normalize

MAX_CANDIDATES: Final = 100_000
_MAX_BYTES: Final = 16 * 1024 * 1024


def read_candidates(path: Path) -> tuple[str, ...]:
    """Read candidates, one per line of a UTF-8 file, and normalize them as devices do."""
    try:
        lines = read_file(path, _MAX_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text") from error
    texts = tuple(normalize(text) for line in lines if (text := line.removesuffix("\r")))
    if not 1 <= len(texts) <= MAX_CANDIDATES:
        raise SettingsError(
            f"{path} has {len(texts)} candidates; it must have 1 to {MAX_CANDIDATES}"
        )
    if repeated := len(texts) - len(set(texts)):
        raise SettingsError(f"{path} repeats {repeated} candidates; each must appear once")
    return texts
