"""What is noted while the services run: randomness drawn, databases' settings, keys destroyed."""

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from common.runtime.database import Database

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """How a service writes to one of its databases, asked over its own connection."""

    name: str
    synchronous: int
    """2 is FULL: what was committed outlives a loss of power; 3 is more."""
    secure_delete: int
    """1: what is deleted is overwritten."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Watched:
    """What was noted."""

    drawn: frozenset[bytes]
    """Of a key's length, from the operating system."""
    settings: tuple[DatabaseSettings, ...]
    """Of each database, when it was opened and when it was closed."""
    at_places: dict[str, bytes]
    """What a key file's place on the disk holds at the end, by the name that the file had."""
    lengths: dict[str, int]
    """Of the same files, in bytes, when they were found."""


class Watch:
    """
    Notes what services do while a block runs, in this process and without changing it.

    Args:
        links: A folder for second names of key files, on the file system of the services' own. By
            its second name a file can be read when it has been deleted.
    """

    def __init__(self, links: Path) -> None:
        self._links = links
        self._drawn = set[bytes]()
        self._settings: list[DatabaseSettings] = []
        self._lengths: dict[str, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note, for as long as a block runs."""
        with (
            mock.patch.object(secrets, "token_bytes", self._noting(secrets.token_bytes)),
            mock.patch.object(os, "urandom", self._noting(os.urandom)),
            mock.patch.object(Database, "__init__", self._opening(Database.__init__)),
            mock.patch.object(Database, "close", self._closing(Database.close)),
        ):
            yield

    def hold(self, state: Path) -> None:
        """Give every key of a batch in a state directory its second name."""
        self._links.mkdir(exist_ok=True)
        for path in state.glob("batch-*.key"):
            second = self._links / path.name
            with suppress(FileExistsError, FileNotFoundError):  # it has one, or is just deleted
                second.hardlink_to(path)
                self._lengths[path.name] = second.stat().st_size

    def watched(self) -> Watched:
        """Give what was noted."""
        places = sorted(self._links.glob("*.key"))
        return Watched(
            drawn=frozenset(self._drawn),
            settings=tuple(self._settings),
            at_places={path.name: path.read_bytes() for path in places},
            lengths=dict(self._lengths),
        )

    def _noting(self, draw: Callable[..., bytes]) -> Callable[..., bytes]:
        def noted(*size: Any) -> bytes:  # noqa: ANN401  # as the function that it stands before
            drawn = draw(*size)
            if len(drawn) == _KEY_BYTES:
                self._drawn.add(drawn)
            return drawn

        return noted

    def _opening(self, honest: Callable[..., None]) -> Callable[..., None]:
        def opened(database: Any, path: Path, schema: str) -> None:  # noqa: ANN401  # its inside
            honest(database, path, schema)
            self._ask(database)

        return opened

    def _closing(self, honest: Callable[..., None]) -> Callable[..., None]:
        def closed(database: Any) -> None:  # noqa: ANN401  # its inside
            self._ask(database)
            honest(database)

        return closed

    def _ask(self, database: Any) -> None:  # noqa: ANN401  # its inside
        """Ask over the one connection of a database, in the one thread that may use it."""
        self._settings.append(database._thread.submit(_settings, database._connection).result())  # noqa: SLF001


def _settings(connection: sqlite3.Connection) -> DatabaseSettings:
    def asked(pragma: str) -> Any:  # noqa: ANN401  # a cell
        return connection.execute(f"PRAGMA {pragma}").fetchone()

    return DatabaseSettings(
        name=Path(connection.execute("PRAGMA database_list").fetchone()[2]).name,
        synchronous=int(asked("synchronous")[0]),
        secure_delete=int(asked("secure_delete")[0]),
    )
