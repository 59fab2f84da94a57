"""A task exactly as it was signed, in two files that any program can verify."""

from pathlib import Path
from typing import Final

from common.crypto.signing import SignedTask
from common.runtime.state_directory import atomic_write
from deploy.terminal.output_file import cannot_write

NAMES: Final = ("task.json", "task.sig")
"""Of the bytes, and of the signature."""
_READABLE: Final = 0o644


def save(folder: Path, signed: SignedTask) -> None:
    """
    Write a task's bytes, whose SHA-256 is its digest, and the 64 bytes of its signature.

    Each file is replaced whole, or stays unchanged, as on a full disk; the signature is written
    last. How to verify them without this program: docs/auditors/verify-a-task.md.

    Args:
        folder: Made if it does not exist.
        signed: The task as received.

    Raises:
        SettingsError: A file cannot be written.
    """
    for name, content in zip(NAMES, (signed.task_bytes, signed.signature), strict=True):
        try:
            folder.mkdir(exist_ok=True)
            atomic_write(folder / name, content, _READABLE)
        except OSError as error:
            raise cannot_write(folder / name, error) from error
