"""
A party's state directory, and the key that encrypts its secrets.

The key's file is outside the directory, so that a copy of the directory alone, such as a backup or
a discarded disk, reveals no secret. Access to the key's file or to the process's memory reveals all
secrets; write access to the directory allows replacing them.
"""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from shuffledp.common.crypto.batch_key import KEY_BYTES, SealingKey
from shuffledp.common.errors import DamagedStorageError, SettingsError
from shuffledp.common.runtime.database import FULL, storage_failures

_MARK: Final = b"shuffledp sealed secret v1\n"
RESTORE_CONFIRMED: Final = "restore-confirmed"
"""File by which an operator confirms that missing files are lost. Removed by the next start."""
_OF_A_START: Final = (
    *("keys.json", "hpke-*.key", "token-*.key", "permanent.key", "address"),
    "unsaved/keys.json",  # of a relay
)
"""Files that only a start makes, unlike an identity, which may be made before. `clock.json` is not
among them: a start that fails before it makes any key leaves it."""


class StateKey(SealingKey):
    """Seals secrets, each bound to the name of its file."""

    __slots__ = ("_where",)

    def __init__(self, raw: bytes, where: Path) -> None:
        if len(raw) != KEY_BYTES:
            raise SettingsError(
                f"the file that state_key names, {where}, has {len(raw)} bytes; it must have "
                f"{KEY_BYTES}"
            )
        super().__init__(raw)
        self._where = where

    def seal_secret(self, name: str, secret: bytes) -> bytes:
        """Encrypt a secret under a fresh nonce, bound to the name of its file."""
        return _MARK + self.seal(secret, _MARK + name.encode())

    def open_secret(self, name: str, sealed: bytes) -> bytes:
        """Decrypt a secret sealed for a file of this name, or raise SettingsError."""
        if not sealed.startswith(_MARK):
            raise SettingsError(
                f"the key file {name} is damaged, or of a version that did not encrypt secrets: "
                "put it back from a backup, or finish with that version. If it is lost, move the "
                "file away: the next start names what to do"
            )
        try:
            return self.open(sealed.removeprefix(_MARK), _MARK + name.encode())
        except DamagedStorageError as error:
            raise SettingsError(
                f"{name} in the state directory does not open under the file that state_key names, "
                f"{self._where}: it was sealed under another key, for another file, or is damaged"
            ) from error


_OWNER_ONLY_DIRECTORY: Final = 0o700
_OWNER_ONLY_FILE: Final = 0o600
_PUBLIC_FILE: Final = 0o644
_WRITABLE_BY_OTHERS: Final = 0o022
_SCRATCH_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """A party's files. Secrets are written atomically, and only their owner can read them."""

    path: Path
    _key_file: Path
    _key: list[StateKey] = field(default_factory=list, repr=False, compare=False)
    """The state key, read or created on first use."""

    @classmethod
    def open(cls, path: Path, state_key: Path | None = None) -> Self:
        """
        Open the directory; create it with mode 0700 if missing, or raise SettingsError.

        Its secrets are encrypted under the key in the file `state_key`, by default PATH.key beside
        the directory. The key file is created with the first secret.
        """
        try:
            path.mkdir(mode=_OWNER_ONLY_DIRECTORY, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"the state directory cannot be created: {error.strerror}"
            ) from error
        return cls(path, state_key or path.absolute().with_name(f"{path.absolute().name}.key"))

    def within(self, name: str) -> Self:
        """Open a directory inside, whose secrets are encrypted under the same key."""
        return self.open(self.path / name, self._key_file)

    @storage_failures()
    def is_open_to_others(self) -> bool:
        """Return whether users other than the owner can write here, and so replace secrets."""
        return bool(stat.S_IMODE(self.path.stat().st_mode) & _WRITABLE_BY_OTHERS)

    @contextmanager
    def held(self) -> Generator[None]:
        """
        Lock the directory against other processes during the block, or raise SettingsError.

        Two processes on one directory would each charge a ledger that the other does not see. The
        lock ends with the block or the process; spawned workers do not inherit it.
        """
        with ExitStack() as stack:
            with storage_failures():
                file = stack.enter_context((self.path / "lock").open("ab"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise SettingsError(
                        "the state directory is in use by another process: stop it, or give each "
                        "service its own state_directory"
                    ) from None
            yield

    def restore_confirmed(self) -> bool:
        """Return whether an operator has confirmed that missing files are lost."""
        return (self.path / RESTORE_CONFIRMED).exists()

    def started(self) -> None:
        """Use up the confirmation of a restore."""
        (self.path / RESTORE_CONFIRMED).unlink(missing_ok=True)

    def of_a_start(self) -> list[str]:
        """List the files that show that a service has been started here, if only in part."""
        return [name for pattern in _OF_A_START for name in self.names(pattern)]

    @storage_failures()
    def database(self, name: str) -> Path:
        """
        Return the path of a database that every start makes.

        Raises SettingsError if it is missing or empty beside files of a start, as after a partial
        restore.
        """
        path, left = self.path / name, self.of_a_start()
        there = path.is_symlink() or (path.exists() and path.stat().st_size > 0)
        if not there and left and not self.restore_confirmed():
            raise SettingsError(
                f"{name} is missing in the state directory, or empty, while {left[0]} is there: "
                "put it back or, if it is lost, confirm that: shuffledp keys confirm-restore "
                f"{self.path}"
            )
        return path

    @storage_failures()
    def secret(self, name: str, make: Callable[[], bytes], *, public: str | None = None) -> bytes:
        """
        Read a secret; if it does not exist, store the one that `make` returns.

        `public` is the file of its public half, which others pin.

        Raises SettingsError if a file is damaged, a link or open to others, the state key is
        missing, or the secret is missing although its public half is not.
        """
        key, path = self._state_key(), self.path / name
        if not os.path.lexists(path):
            if public is not None and os.path.lexists(self.path / public):
                raise SettingsError(
                    f"{name} is missing in the state directory, but {public} is not: put it back "
                    "from a backup or, for a new key, which all who pin the old one must learn, "
                    f"remove {public}"
                )
            atomic_write(path, key.seal_secret(name, make()), _OWNER_ONLY_FILE)
        return key.open_secret(name, _read_secret(path))

    @storage_failures()
    def plain_secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Read or store a secret as `secret` does, but unencrypted."""
        path = self.path / name
        if not os.path.lexists(path):
            atomic_write(path, make(), _OWNER_ONLY_FILE)
        return _read_secret(path)

    def _state_key(self) -> StateKey:
        """Read the state key once; create it if it is missing and nothing is sealed yet."""
        if not self._key:
            try:
                if not self._key_file.exists():
                    self._check_nothing_is_sealed()
                    _write_new(self._key_file, StateKey.generate())
                raw = _read_secret(self._key_file, follow_link=True)  # the owner chose the path
            except OSError as error:
                if error.errno in FULL:
                    raise  # the cause is not the file's path
                raise SettingsError(
                    f"the file that state_key names, {self._key_file}, cannot be used: "
                    f"{error.strerror}"
                ) from error
            self._key.append(StateKey(raw, self._key_file))
        return self._key[0]

    def _check_nothing_is_sealed(self) -> None:
        for path in self.path.glob("*.key"):
            if path.read_bytes().startswith(_MARK):
                raise SettingsError(
                    f"the file that state_key names, {self._key_file}, is missing, and {path.name} "
                    "in the state directory is sealed under it: put it back"
                )

    @storage_failures()
    def publish(self, name: str, content: str) -> None:
        """Write a public file, such as a public key or the listening address."""
        atomic_write(self.path / name, content.encode(), _PUBLIC_FILE)

    def names(self, pattern: str) -> list[str]:
        """List the names of the files that match a pattern such as `*.key`."""
        return sorted(str(path.relative_to(self.path)) for path in self.path.glob(pattern))

    @storage_failures()
    def destroy(self, name: str) -> None:
        """
        Destroy a secret: overwrite, flush, unlink. Idempotent; raises SettingsError for a link.

        A copy-on-write file system, a snapshot, or a disk with wear levelling may keep the old
        block, which is encrypted under the state key.
        """
        path = self.path / name
        if not path.exists():
            return
        with open(path, "r+b", opener=_no_link) as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        flush_directory(self.path)


def atomic_write(path: Path, content: bytes | bytearray | memoryview, mode: int) -> None:
    """Write a file with permissions `mode`, atomically and durably even if the system crashes."""
    scratch = _write_scratch(path, content, mode)
    try:
        scratch.replace(path)
    except OSError:  # a folder is in its place
        scratch.unlink()
        raise
    flush_directory(path.parent)


def _write_new(path: Path, content: bytes) -> None:
    """Write a secret atomically, unless another process already has."""
    scratch = _write_scratch(path, content, _OWNER_ONLY_FILE)
    try:
        path.hardlink_to(scratch)
    except FileExistsError:
        pass
    finally:
        scratch.unlink()
    flush_directory(path.parent)


def _write_scratch(path: Path, content: bytes | bytearray | memoryview, mode: int) -> Path:
    """Write and flush a new file with a random name beside `path`, without following links."""
    scratch = path.with_name(f".{path.name}.{secrets.randbits(_SCRATCH_BITS)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(scratch, flags, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        scratch.unlink(missing_ok=True)
        error.filename = str(path)  # of a full disk, the system names no file
        raise
    return scratch


def _read_secret(path: Path, *, follow_link: bool = False) -> bytes:
    with open(path, "rb", opener=None if follow_link else _no_link) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & ~_OWNER_ONLY_FILE:
            raise SettingsError(
                f"the key file {path.name} has mode {mode:04o}; others must not read it: chmod 600"
            )
        return file.read()


def _no_link(path: str, flags: int) -> int:
    """Open a secret's file; raise SettingsError for a link."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SettingsError(
            f"{Path(path).name} in the state directory is a link; a secret must be a regular file: "
            "remove the link"
        ) from error


def flush_directory(path: Path) -> None:
    """Flush a directory, which makes renames and unlinks in it durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
