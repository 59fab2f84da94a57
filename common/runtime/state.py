"""A party's state directory: its own, closed to others, with keys made on first start."""

import fcntl
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from common.errors import SettingsError

_OWNER_ONLY_DIRECTORY: Final = 0o700
_OWNER_ONLY_FILE: Final = 0o600
_PUBLIC_FILE: Final = 0o644


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Files of one party. Secrets have mode 0600 and appear whole or not at all."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Make the directory if it is not there, with mode 0700."""
        try:
            path.mkdir(mode=_OWNER_ONLY_DIRECTORY, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"the state directory cannot be made: {error.strerror}") from error
        return cls(path)

    @contextmanager
    def held(self) -> Generator[None]:
        """
        Keep every other process out for as long as the block runs.

        Two of one party on one directory would each charge a ledger that the other does not see.
        The system lets go when the process ends, however it ends; spawned workers do not inherit.

        Raises:
            SettingsError: Another process holds it.
        """
        with (self.path / "lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingsError(
                    "the state directory is in use by another process: stop it, or give each "
                    "service a state_directory of its own"
                ) from None
            yield

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """
        Read a secret; on first start make and keep it.

        Raises:
            SettingsError: Others may read the file.
        """
        path = self.path / name
        if not path.exists():
            write_whole(path, make(), _OWNER_ONLY_FILE)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & ~_OWNER_ONLY_FILE:
            raise SettingsError(
                f"the key file {name} has mode {mode:04o}; others must not read it: chmod 600"
            )
        return path.read_bytes()

    def publish(self, name: str, content: str) -> None:
        """Write something that others may read, such as a public key or the bound address."""
        write_whole(self.path / name, content.encode(), _PUBLIC_FILE)

    def names(self, pattern: str) -> list[str]:
        """List the files whose name fits a pattern such as `*.key`."""
        return sorted(path.name for path in self.path.glob(pattern))

    def destroy(self, name: str) -> None:
        """
        Destroy a secret: overwrite, flush, unlink. Doing it again does nothing.

        A file system that copies on write may keep the old block; an operator who needs more puts
        the state directory on one that does not, or on memory.
        """
        path = self.path / name
        if not path.exists():
            return
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        flush_directory(self.path)


def write_whole(path: Path, content: bytes | bytearray, mode: int) -> None:
    """Write a file so that it is seen whole or not at all, even after a crash."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    flush_directory(path.parent)


def flush_directory(path: Path) -> None:
    """Make a rename or an unlink in this directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
