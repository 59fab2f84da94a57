"""A look at a party's state directory: its files, who may read them, what its keys open to."""

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.errors import SettingsError
from common.runtime.state_directory import StateKey, is_sealed
from deploy.audit.raw_bytes import written
from deploy.audit.services.tape import Party

DIRECTORY: Final = "."
"""Name of the state directory itself, among its files."""
ROWID: Final = "rowid"
"""Name of the number that SQLite gives each row of a table, unless the table is without it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Look:
    """A party's state directory as it was at one moment."""

    party: Party
    moment: str
    files: dict[str, bytes]
    """Contents by path within the directory."""
    others: tuple[str, ...]
    """Paths of all else that has a name there: a folder's, empty ones too, and a link's."""
    modes: dict[str, int]
    """Who may read and write what, by path."""
    secrets: dict[str, bytes | None]
    """What lies sealed in the files of keys; None of one that is not sealed, or does not open."""
    state_key: bytes
    """That they are sealed under; its file lies beside the directory."""


def look(state: Path, party: Party, moment: str) -> Look:
    """Read a party's files; one that is deleted at that very moment is left out."""
    files, modes = dict[str, bytes](), {DIRECTORY: _mode(state)}
    others = list[str]()
    for path in _paths(state):
        name = str(path.relative_to(state))
        try:
            kind = path.lstat().st_mode
            if stat.S_ISDIR(kind):
                others.append(f"{name}/")
            elif not stat.S_ISREG(kind) and not stat.S_ISSOCK(kind):
                others.append(name)
            if path.is_file():
                files[name], modes[name] = path.read_bytes(), _mode(path)
        except FileNotFoundError:
            continue
    key_file = state.with_name(f"{state.name}.key")
    raw = key_file.read_bytes() if key_file.exists() else b""
    return Look(
        party=party,
        moment=moment,
        files=files,
        others=tuple(others),
        modes=modes,
        secrets={
            name: _opened(name, content, raw, key_file)
            for name, content in files.items()
            if name.endswith(".key")
        },
        state_key=raw,
    )


def columns(state: Path) -> dict[str, tuple[str, ...]]:
    """
    Give the columns of every table of a party's databases, by table; SQLite's own left out.

    A table that numbers its rows in the order of their arrival has a column more, ROWID.
    """
    found = {}
    for path in sorted(state.rglob("*.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT name, wr FROM pragma_table_list WHERE schema = 'main'"
            for table, unnumbered in connection.execute(query).fetchall():
                if not table.startswith("sqlite_"):
                    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
                    names = tuple(str(name) for (name,) in rows)
                    found[str(table)] = names if unnumbered else (*names, ROWID)
    return found


def _paths(state: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(state):
        yield from (Path(folder) / name for name in sorted((*folders, *names)))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _opened(name: str, content: bytes, raw: bytes, key_file: Path) -> bytes | None:
    """Open a sealed secret, and leave its file as it is."""
    if not is_sealed(content):
        return None
    try:
        return StateKey(raw, key_file).open(name, content)
    except SettingsError:
        return None


def secret_ways(looks: Iterable[Look]) -> list[bytes]:
    """Give the ways in which keys of any party may be written, opened as they were looked at."""
    keys = {key for seen in looks for key in (*seen.secrets.values(), seen.state_key) if key}
    return [way for key in sorted(keys) for way in written(key)]
