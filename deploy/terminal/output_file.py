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
"""Mode of a file that was not there, less what the user's mask takes off."""


def check_folder(path: Path | None) -> None:
    """
    Check, before anything is worked out, that a file can be put where it is wanted.

    Raises:
        SettingsError: Its folder is not there.
    """
    if path is not None and not path.resolve().parent.is_dir():
        raise SettingsError(f"{path} cannot be written: its folder is not there")


@contextmanager
def whole(path: Path) -> Generator[Path]:
    """
    Give the path to write a file at, so that what was there stays until all of the new is.

    It is a new file beside the one that is wanted, of the same mode, and takes its place at the end
    of the block; if the block fails, it is gone. A link is followed, and its target written in
    place, as is what is no file, such as /dev/stdout: there is nothing there to be put back.

    Raises:
        SettingsError: It cannot be written, whatever within the block found out.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            yield path
            return
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _NEW
        scratch = path.with_name(f".shuffledp-{secrets.token_hex(16)}")
        # The name is nobody else's: whoever may write here too has no other file written over.
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
    """
    Write a file: all of it, or nothing; see `whole`.

    Raises:
        SettingsError: It cannot be written.
    """
    with whole(path) as file:
        file.write_text(text, encoding="utf-8")


def cannot_write(path: Path, error: OSError) -> SettingsError:
    """Say why a file cannot be written."""
    return SettingsError(f"{path} cannot be written: {error.strerror or 'its disk fails'}")
