"""
A party's state directory: closed to others, held by one process, and on the disk when it says so.

Tried on a directory of its own, with a mask that would leave every file open to everybody.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from common.errors import SettingsError, ShuffleDpError
from common.runtime.state_directory import StateDirectory
from common.runtime.state_directory import atomic_write as write_whole
from deploy.audit.checks import Checks

_RAW: Final = bytes(range(32))
_OTHER: Final = bytes(32)
_READABLE: Final = (0o640, 0o604, 0o660, 0o644)
_WRITABLE: Final = (0o720, 0o702, 0o777)


def check_directories(checks: Checks) -> None:
    """Check modes, links, locks and the order of writes."""
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder, _no_mask():
        _check_modes(checks, Path(folder))
        _check_refusals(checks, Path(folder))
        _check_lock(checks, StateDirectory.open(Path(folder) / "party"))
        _check_durable(checks, Path(folder))


@contextmanager
def _no_mask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def _check_modes(checks: Checks, folder: Path) -> None:
    state = StateDirectory.open(folder / "party")
    state.secret("sealed.key", lambda: _RAW)
    state.plain_secret("plain.token", lambda: _RAW)
    secrets = [folder / "party.key", state.path / "sealed.key", state.path / "plain.token"]
    checks.must(
        "secrets are closed to others, and so is the folder where they lie",
        [stat.S_IMODE(path.stat().st_mode) for path in (state.path, *secrets)]
        == [0o700, 0o600, 0o600, 0o600],
    )
    for mode in _WRITABLE:
        state.path.chmod(mode)
        checks.must("a folder that others may write to is noticed", state.is_open_to_others())
    state.path.chmod(0o700)
    checks.must("a folder that is closed is not taken for open", not state.is_open_to_others())


def _check_refusals(checks: Checks, folder: Path) -> None:
    """Each time another process, which has read nothing yet, reads what lies there."""
    path = folder / "party"
    reads: dict[Path, Callable[[], bytes]] = {
        folder / "party.key": lambda: StateDirectory.open(path).secret("sealed.key", _never),
        path / "sealed.key": lambda: StateDirectory.open(path).secret("sealed.key", _never),
        path / "plain.token": lambda: StateDirectory.open(path).plain_secret("plain.token", _never),
    }
    for file, read in reads.items():
        checks.must("a secret that was made is read again", _read(read) == _RAW)
        for mode in _READABLE:
            file.chmod(mode)
            checks.must("a secret that others may read is not used", _read(read) is None)
        file.chmod(0o600)
    for name in ("sealed.key", "plain.token"):
        elsewhere = (path / name).rename(folder / name)
        (path / name).symlink_to(elsewhere)
        checks.must("a link in a secret's place is not followed", _read(reads[path / name]) is None)
        (path / name).unlink()
        elsewhere.rename(path / name)
    (path / "other.key").write_bytes((path / "sealed.key").read_bytes())
    (path / "other.key").chmod(0o600)
    copied = StateDirectory.open(path)
    checks.must(
        "a sealed secret opens under no other name",
        _read(lambda: copied.secret("other.key", _never)) is None,
    )
    (path / "other.key").unlink()
    (folder / "party.key").rename(folder / "away")
    lost = StateDirectory.open(path)
    checks.must(
        "no state key is made anew while something is sealed under one that is gone",
        _read(lambda: lost.secret("new.key", lambda: _OTHER)) is None
        and not (folder / "party.key").exists(),
    )
    (folder / "away").rename(folder / "party.key")


def _never() -> bytes:
    """Make what should not be made: it is there."""
    return _OTHER


def _read(read: Callable[[], bytes]) -> bytes | None:
    """Give a secret; None where it is refused."""
    try:
        return read()
    except ShuffleDpError:
        return None


def _check_lock(checks: Checks, state: StateDirectory) -> None:
    with state.held():
        checks.must("one process holds a state directory, and no second", not _held(state))
    checks.must("it is let go when it ends", _held(state))


def _held(state: StateDirectory) -> bool:
    try:
        with state.held():
            return True
    except SettingsError:
        return False


def _check_durable(checks: Checks, folder: Path) -> None:
    """A file has its name once its content is on the disk, and then the name is flushed too."""
    flushed, honest = list[tuple[str, bytes]](), os.fsync
    path = folder / "whole"
    path.write_bytes(_OTHER)

    def noted(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        flushed.append((kind, path.read_bytes()))
        honest(descriptor)

    with patch.object(os, "fsync", noted):
        write_whole(path, _RAW, 0o600)
    checks.must(
        "a file takes another's place once it is on the disk, and not by halves",
        flushed == [("file", _OTHER), ("folder", _RAW)]
        and path.read_bytes() == _RAW
        and [one.name for one in folder.iterdir() if one.name.startswith(".")] == [],
    )
