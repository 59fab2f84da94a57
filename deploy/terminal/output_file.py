"""Files that commands write."""

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.errors import SettingsError

_NEW: Final = 0o666
"""Mode of a new file, less the user's mask."""


def check_folder(path: Path | None) -> None:
    """Check early that the folder of an output file exists, or raise a SettingsError."""
    if path is not None and not path.resolve().parent.is_dir():
        raise SettingsError(f"{path} cannot be written: its folder is not there")


@contextmanager
def whole(path: Path) -> Generator[Path]:
    """
    Yield a path to write to, so that the file is replaced whole or stays unchanged.

    It is a new file beside the wanted one, of the same mode, which takes its place at the end of
    the block, or is deleted if the block fails. The target of a link, and anything that is not a
    regular file, such as /dev/stdout, is written in place.

    Raises:
        SettingsError: It cannot be written.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            yield path
            return
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _NEW
        scratch = path.with_name(f".shuffledp-{secrets.token_hex(16)}")
        # O_EXCL: another user of the folder cannot have a file of theirs overwritten.
        os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        try:
            yield scratch
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def write(path: Path, text: str) -> None:
    """Write a file: all of it, or nothing, with the errors of `whole`."""
    with whole(path) as file:
        file.write_text(text, encoding="utf-8")


def cannot_write(path: Path, error: OSError) -> SettingsError:
    """Return the error that says why a file cannot be written."""
    return SettingsError(f"{path} cannot be written: {error.strerror or 'its disk fails'}")
