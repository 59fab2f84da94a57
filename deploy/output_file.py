"""Files that commands write."""

from pathlib import Path

from common.errors import SettingsError


def check_folder(path: Path | None) -> None:
    """
    Check, before anything is worked out, that a file can be put where it is wanted.

    Raises:
        SettingsError: Its folder is not there.
    """
    if path is not None and not path.resolve().parent.is_dir():
        raise SettingsError(f"{path} cannot be written: its folder is not there")


def write(path: Path, text: str) -> None:
    """
    Write a file.

    Raises:
        SettingsError: It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> SettingsError:
    """Say why a file cannot be written."""
    return SettingsError(f"{path} cannot be written: {error.strerror or 'its disk fails'}")
