"""A task exactly as it was signed, in two files that any program can verify."""

from pathlib import Path
from typing import Final

from common.crypto.signing import SignedTask
from common.runtime.state_directory import write_whole
from deploy.terminal.output_file import cannot_write

NAMES: Final = ("task.json", "task.sig")
"""Of the bytes, and of the signature."""
_FOR_EVERYBODY: Final = 0o644


def save(folder: Path, signed: SignedTask) -> None:
    """
    Write a task's bytes, of which its digest is the SHA-256, and the 64 bytes of its signature.

    Each is there whole or, as on a full disk, as it was; the signature is written last. How the two
    are verified without this program: docs/auditors/verify-a-task.md.

    Args:
        folder: Made if it is not there.
        signed: The task as it came.

    Raises:
        SettingsError: A file cannot be written.
    """
    for name, content in zip(NAMES, (signed.task_bytes, signed.signature), strict=True):
        try:
            folder.mkdir(exist_ok=True)
            write_whole(folder / name, content, _FOR_EVERYBODY)
        except OSError as error:
            raise cannot_write(folder / name, error) from error
