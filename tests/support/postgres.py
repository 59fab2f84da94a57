"""A PostgreSQL server for tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.support.tools import tool

_NUMBERS: Final = count()
_PATH: Final = "/usr/lib/postgresql/15/bin:/usr/lib/postgresql/16/bin:/usr/lib/postgresql/17/bin"
"""Debian's directories of the server's programs."""
_FAST: Final = "fsync=off\nfull_page_writes=off\n"


class PostgresServer:
    """A server on a Unix socket in its own directory."""

    def __init__(self, settings: str = _FAST, primary: "PostgresServer | None" = None) -> None:
        """Create an empty server, or a standby of a running one."""
        self._control = tool("pg_ctl", _PATH)
        self.path = Path(tempfile.mkdtemp(prefix="shuffledp-postgres-"))
        self._user: list[str] = []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            self._user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self.path, "postgres")
        if primary is None:
            initdb = tool("initdb", _PATH)
            self._run(initdb, "-D", self.data, "--no-sync", "-A", "trust", "-U", "postgres")
        else:
            copy = tool("pg_basebackup", _PATH)
            self._run(
                copy, "-D", self.data, "-c", "fast", "-R", "-h", primary.path, "-U", "postgres"
            )
        configuration = self.data / "postgresql.conf"
        with configuration.open("a", encoding="utf-8") as file:
            file.write(
                f"unix_socket_directories='{self.path}'\nlisten_addresses=''\n"
                f"max_connections=50\nshared_buffers=32MB\nautovacuum=off\n{settings}"
            )

    @property
    def data(self) -> Path:
        """The directory of its files."""
        return self.path / "data"

    def start(self) -> None:
        """Start, or start again."""
        log = self.path / "log"
        self._run(self._control, "-D", self.data, "-l", log, "-w", "-t", "60", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop; `immediate` ends it as a crash does."""
        self._run(self._control, "-D", self.data, "-w", "-m", mode, "stop")

    def promote(self) -> None:
        """Let a standby accept writes."""
        self._run(self._control, "-D", self.data, "-w", "-t", "60", "promote")

    def wait_for_standbys(self) -> None:
        """Acknowledge a commit from now on once a standby has it."""
        with psycopg.connect(self.uri("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")

    def database(self) -> str:
        """Create an empty database; return its URI."""
        name = f"test{next(_NUMBERS)}"
        with psycopg.connect(self.uri("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.uri(name)

    def uri(self, name: str) -> str:
        """Return the URI of a database."""
        return f"postgresql://postgres@/{name}?host={self.path}"

    def remove(self) -> None:
        """Stop, and delete the files."""
        if (self.data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.path)

    def _run(self, *command: str | Path) -> None:
        subprocess.run(
            [*self._user, *map(str, command)],
            check=True,
            cwd=self.path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def postgres_server(
    settings: str = _FAST, primary: PostgresServer | None = None
) -> Iterator[PostgresServer]:
    """Yield a running server, or a standby of another."""
    server = PostgresServer(settings, primary)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Yield one server for all tests that do not stop it."""
    with postgres_server() as server:
        yield server
