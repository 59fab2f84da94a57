import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from common.errors import SettingsError, StorageError
from common.runtime.state_directory import StateDirectory, atomic_write
from tests.support.disks import disk_of, flushes

_HOLD: Final = """
import sys
from pathlib import Path
from common.runtime.state_directory import StateDirectory
with StateDirectory.open(Path(sys.argv[1])).held():
    pass
"""


def _try_to_hold(path: Path) -> str:
    command = [sys.executable, "-c", _HOLD, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_a_secret_is_made_once_with_mode_0600(tmp_path: Path) -> None:
    """The second call reads what the first made."""
    state = StateDirectory.open(tmp_path / "state")
    first = state.secret("key", lambda: b"first")

    assert b"first" == first == state.secret("key", lambda: b"second")
    assert (tmp_path / "state" / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_secret_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    """The message says what to do."""
    state = StateDirectory.open(tmp_path)
    state.secret("key", lambda: b"x")
    (tmp_path / "key").chmod(0o644)

    with pytest.raises(SettingsError, match="chmod 600"):
        state.secret("key", lambda: b"x")


def test_a_directory_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    """Another is told why; when the first lets go, it may start."""
    state = StateDirectory.open(tmp_path)
    with state.held():
        assert "in use by another process" in _try_to_hold(tmp_path)

    assert _try_to_hold(tmp_path) == ""


def test_a_directory_that_cannot_be_held_is_a_sentence(tmp_path: Path) -> None:
    """Something else is in the place of the lock's file: no traceback; the block never runs."""
    state = StateDirectory.open(tmp_path)
    (tmp_path / "lock").mkdir()
    with pytest.raises(StorageError, match="disk of the state directory"), state.held():
        pytest.fail("held")


def test_what_fails_while_a_directory_is_held_is_not_the_disk(tmp_path: Path) -> None:
    """A service's own failure passes as it is."""
    with pytest.raises(ConnectionError), StateDirectory.open(tmp_path).held():
        raise ConnectionError


def test_a_destroyed_secret_is_gone(tmp_path: Path) -> None:
    """
    Also from where it lay on the disk, seen through another name and an open file; and destroying
    it again does nothing.
    """
    state, path, other = (StateDirectory.open(tmp_path), tmp_path / "key", tmp_path / "other name")
    state.secret("key", lambda: b"x" * 32)
    other.hardlink_to(path)
    sealed = path.read_bytes()
    with path.open("rb") as opened:
        state.destroy("key")
        assert bytes(len(sealed)) == opened.read()
    assert bytes(len(sealed)) == other.read_bytes()
    state.destroy("key")

    assert [other] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "use",
    [
        lambda state: state.secret("key", lambda: b"own"),
        lambda state: state.plain_secret("key", lambda: b"own"),
        lambda state: state.destroy("key"),
    ],
)
def test_a_secret_that_is_a_link_is_refused(
    tmp_path: Path, use: Callable[[StateDirectory], object]
) -> None:
    """Whoever may write to the directory cannot have another's secret read or overwritten."""
    others = tmp_path / "others"
    atomic_write(others, b"another's secret, of 32 bytes....", 0o600)
    state = StateDirectory.open(tmp_path / "state")
    (state.path / "key").symlink_to(others)

    with pytest.raises(SettingsError, match=r"^key in the state directory is a link;"):
        use(state)
    assert b"another's secret, of 32 bytes...." == others.read_bytes()


def test_the_state_key_may_be_a_link(tmp_path: Path) -> None:
    """Its owner named it, and some systems hand out secrets as links."""
    state = StateDirectory.open(tmp_path / "state", tmp_path / "state.key")
    state.secret("key", lambda: b"first")
    (tmp_path / "state.key").rename(tmp_path / "kept")
    (tmp_path / "state.key").symlink_to(tmp_path / "kept")
    again = StateDirectory.open(tmp_path / "state", tmp_path / "state.key")

    assert b"first" == again.secret("key", lambda: b"second")


def test_a_file_is_written_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if the name that is written first were known: nobody's file is cut or filled."""
    monkeypatch.setattr("common.runtime.state_directory.secrets.randbits", lambda _bits: 7)
    (tmp_path / "others").write_bytes(b"another's")
    (tmp_path / ".file.7").symlink_to(tmp_path / "others")

    with pytest.raises(FileExistsError):
        atomic_write(tmp_path / "file", b"content", 0o600)
    assert b"another's" == (tmp_path / "others").read_bytes()


def test_nobody_can_keep_a_file_from_being_written(tmp_path: Path) -> None:
    """The name that is written first does not follow from the process."""
    for name in (f".file.{os.getpid()}", f".file.{os.getpid()}.new"):
        (tmp_path / name).mkdir()
    atomic_write(tmp_path / "file", b"content", 0o600)

    assert b"content" == (tmp_path / "file").read_bytes()


def test_a_secret_that_finds_no_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Not half a key, under no name; when there is room it is made as if nothing had been."""
    state = StateDirectory.open(tmp_path)
    with disk_of(2), pytest.raises(StorageError, match="full"):
        state.secret("key", lambda: b"first")
    assert [] == list(tmp_path.iterdir())

    assert b"second" == state.secret("key", lambda: b"second")


def test_a_secret_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash it is there whole, or not at all."""
    state = StateDirectory.open(tmp_path / "party")
    with flushes(monkeypatch) as seen:
        state.secret("own.key", lambda: bytes(32))
    kept = (tmp_path / "party" / "own.key").stat()

    written = [one for one in seen if one[1] == kept.st_ino]
    assert [(act, kept.st_ino, kept.st_size) for act in ("flush", "rename")] == written[:2]
    assert "flush" == seen[-1][0]
