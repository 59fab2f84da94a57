"""Read the input files of commands, and write their output files."""

import os
import secrets
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from shuffledp.common.errors import SettingsError

_NEW_FILE_MODE: Final = 0o666
"""Mode of new files, before the umask."""


def in_folder(path: Path | None) -> Path | None:
    """Return an output path that may be given, or raise SettingsError if it has no folder."""
    if path is not None and not path.resolve().parent.is_dir():
        raise SettingsError(f"{path} cannot be written: its folder does not exist")
    return path


def writable(path: Path | None) -> Path | None:
    """Return an output file that may be given, or raise SettingsError if it is not writable."""
    if path is None:
        return None
    in_folder(path)
    if path.is_dir():
        raise SettingsError(f"{path} cannot be written: it is a folder")
    in_place = path.exists() and _is_link_or_special(path)
    if not os.access(path if in_place else path.resolve().parent, os.W_OK):
        raise SettingsError(f"{path} cannot be written: permission denied")
    return path


def _is_link_or_special(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_file())


@contextmanager
def atomic_output(path: Path, *, quiet: bool = False) -> Generator[Path]:
    """
    Yield a temporary path that replaces the output file at the end, or is deleted on a failure.

    Unless `quiet`, says on standard error that an earlier file is replaced. Links and special
    files, such as /dev/stdout, are written in place. Raises SettingsError.
    """
    replaced = f"Replaced {path}.\n" * path.is_file()
    with writing(path):
        if _is_link_or_special(path):
            yield path
            return
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _NEW_FILE_MODE
        scratch = path.with_name(f".shuffledp-{secrets.token_hex(16)}")
        # O_EXCL: never overwrite or follow a file that another user placed in the folder.
        os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        try:
            yield scratch
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    if not quiet:
        sys.stderr.write(replaced)


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Convert an OSError in the block to a SettingsError saying that the file cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise SettingsError(f"{path} cannot be written: {reason}") from error


@contextmanager
def all_or_nothing(folders: Iterable[Path], *patterns: str) -> Generator[None]:
    """
    Undo on a failure what the block changed: files that match in these folders, and new folders.

    An OSError becomes a SettingsError that names the file.
    """
    folders = list(folders)

    def contents() -> dict[Path, bytes]:
        found = (file for each in folders for pattern in patterns for file in each.glob(pattern))
        return {file: file.read_bytes() for file in found}

    with_parents = {each for folder in folders for each in (folder, *folder.parents)}
    before, missing = contents(), [each for each in with_parents if not each.exists()]
    try:
        yield
    except BaseException as error:
        with suppress(OSError, SettingsError):
            for file, content in contents().items():
                if file not in before:
                    file.unlink()
                elif content != before[file]:
                    with atomic_output(file, quiet=True) as restored:
                        restored.write_bytes(before[file])
            for folder in sorted(filter(Path.exists, missing), reverse=True):
                folder.rmdir()
        if isinstance(error, OSError):
            reason = f"{error.filename} cannot be written: {error.strerror}"
            raise SettingsError(reason) from error
        raise


def write(path: Path, text: str, *, quiet: bool = False) -> None:
    """Write a file completely or not at all; see `atomic_output`."""
    with atomic_output(path, quiet=quiet) as file:
        file.write_text(text, encoding="utf-8")
