import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.errors import SettingsError, StorageError
from shuffledp.common.runtime.state_directory import (
    RESTORE_CONFIRMED,
    StateDirectory,
    StateKey,
    _write_new,
    atomic_write,
)
from tests.support.disks import disk_of, flushes

_HOLD: Final = """
import sys
from pathlib import Path
from shuffledp.common.runtime.state_directory import StateDirectory
with StateDirectory.open(Path(sys.argv[1])).held():
    pass
"""
_SECRET: Final = bytes(range(32))


def _try_to_hold(path: Path) -> str:
    command = [sys.executable, "-c", _HOLD, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_secret_is_made_once_encrypted_and_private(state: StateDirectory, tmp_path: Path) -> None:
    """A copy of the directory without its key file opens nothing."""
    assert _SECRET == state.secret("identity.key", lambda: _SECRET)
    assert _SECRET == StateDirectory.open(state.path).secret("identity.key", bytes)

    [file] = state.path.iterdir()
    assert _SECRET not in file.read_bytes()
    assert [0o600, 0o700, 0o600] == [
        _mode(path) for path in (file, state.path, tmp_path / "state.key")
    ]
    assert 32 == len(key := (tmp_path / "state.key").read_bytes())
    assert repr(key) not in repr(state)
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        state.secret("identity.key", bytes)


def test_a_directory_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    """A second process is refused until the first one ends."""
    with StateDirectory.open(tmp_path).held():
        assert "in use by another process" in _try_to_hold(tmp_path)

    assert _try_to_hold(tmp_path) == ""


def test_only_a_lock_that_fails_is_blamed_on_the_state_directory(tmp_path: Path) -> None:
    """A service's own failure passes unchanged; without a lock the block never runs."""
    state = StateDirectory.open(tmp_path)
    with pytest.raises(ConnectionError), state.held():
        raise ConnectionError
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()
    with pytest.raises(StorageError, match="cannot be opened"), state.held():
        pytest.fail("held")


def test_a_destroyed_secret_is_overwritten(tmp_path: Path) -> None:
    """Another name and an open file show zeros; destroying it again does nothing."""
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
    ("use", "mounted"),
    [
        (lambda state: state.secret("key", lambda: b"own"), True),
        (lambda state: state.secret("key", lambda: b"own"), False),
        (lambda state: state.plain_secret("key", lambda: b"own"), True),
        (lambda state: state.plain_secret("key", lambda: b"own"), False),
        (lambda state: state.destroy("key"), True),
    ],
)
def test_a_secret_that_is_a_link_is_refused(
    state: StateDirectory, tmp_path: Path, use: Callable[[StateDirectory], object], *, mounted: bool
) -> None:
    """No other file is read, overwritten or, as where a disk is not mounted, made through it."""
    others = tmp_path / "others"
    if mounted:
        atomic_write(others, b"another's secret, of 32 bytes....", 0o600)
    (state.path / "key").symlink_to(others)

    with pytest.raises(SettingsError, match=r"^key in the state directory is a link;"):
        use(state)
    assert (state.path / "key").is_symlink()
    assert mounted == others.exists()
    assert not mounted or b"another's secret, of 32 bytes...." == others.read_bytes()


def test_the_state_key_may_be_a_link_elsewhere(tmp_path: Path) -> None:
    """Some systems mount secrets as links."""
    where = tmp_path / "elsewhere"
    StateDirectory.open(tmp_path / "state", where).secret("key", lambda: b"first")
    where.rename(tmp_path / "kept")
    where.symlink_to(tmp_path / "kept")

    assert b"first" == StateDirectory.open(tmp_path / "state", where).secret("key", bytes)
    assert not (tmp_path / "state.key").exists()


def test_a_file_is_written_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker may know the name of the temporary file, and make it a link."""
    monkeypatch.setattr(
        "shuffledp.common.runtime.state_directory.secrets.randbits", lambda _bits: 7
    )
    (tmp_path / "others").write_bytes(b"another's")
    (tmp_path / ".file.7").symlink_to(tmp_path / "others")

    with pytest.raises(FileExistsError):
        atomic_write(tmp_path / "file", b"content", 0o600)
    assert b"another's" == (tmp_path / "others").read_bytes()


def test_a_secret_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """No partial key is left; once there is room, a new key is made."""
    state = StateDirectory.open(tmp_path)
    with disk_of(2), pytest.raises(StorageError, match="full"):
        state.secret("key", lambda: b"first")
    assert [] == list(tmp_path.iterdir())

    assert b"second" == state.secret("key", lambda: b"second")


def test_a_secret_is_flushed_before_it_is_renamed(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the file is complete or missing."""
    with flushes(monkeypatch) as seen:
        state.secret("own.key", lambda: bytes(32))
    kept = (state.path / "own.key").stat()

    written = [one for one in seen if one[1] == kept.st_ino]
    assert [(act, kept.st_ino, kept.st_size) for act in ("flush", "rename")] == written[:2]
    assert "flush" == seen[-1][0]


def test_a_lost_or_wrong_key_file_stops_the_start(state: StateDirectory, tmp_path: Path) -> None:
    """The message names the secret and the file; no second key is made."""
    state.secret("identity.key", lambda: _SECRET)
    for length in (0, 31, 33):
        (tmp_path / "state.key").write_bytes(bytes(length))
        with pytest.raises(SettingsError, match=f"state_key names, .*, has {length} bytes; it mu"):
            StateDirectory.open(state.path).secret("identity.key", bytes)
    (tmp_path / "state.key").write_bytes(StateKey.generate())
    with pytest.raises(SettingsError, match=r"identity\.key .* state_key names, .*state\.key"):
        StateDirectory.open(state.path).secret("identity.key", bytes)
    (tmp_path / "state.key").unlink()
    with pytest.raises(SettingsError, match=r"is missing, and identity.key .* put it back"):
        StateDirectory.open(state.path).secret("other.key", lambda: _SECRET)

    assert not (tmp_path / "state.key").exists()
    assert not (state.path / "other.key").exists()


def test_a_key_file_that_cannot_be_made_or_read_is_reported(tmp_path: Path) -> None:
    """The file's directory is missing, or a directory has its name."""
    for where in (tmp_path / "nowhere" / "key", tmp_path):
        state = StateDirectory.open(tmp_path / "state", where)
        with pytest.raises(SettingsError, match=r"state_key names|mode"):
            state.secret("identity.key", lambda: _SECRET)


def test_files_for_operators_are_private_and_need_no_key(
    state: StateDirectory, tmp_path: Path
) -> None:
    """The token and the address stay readable."""
    state.plain_secret("operator.token", lambda: b"token")
    state.publish("address", "127.0.0.1:1")

    assert b"token" == (state.path / "operator.token").read_bytes()
    assert 0o600 == _mode(state.path / "operator.token")
    assert not (tmp_path / "state.key").exists()


def test_two_parties_that_make_one_key_file_at_once_agree(tmp_path: Path) -> None:
    """The second one takes the first one's key, and leaves no other file."""
    where = tmp_path / "shared"
    _write_new(where, b"f" * 32)
    _write_new(where, b"s" * 32)

    assert b"f" * 32 == where.read_bytes()
    assert [where] == list(tmp_path.iterdir())
    assert 0o600 == _mode(where)


@pytest.mark.parametrize("content", [b"", b"x" * 32, b"x" * 87])
def test_an_unencrypted_secret_is_refused_and_kept(state: StateDirectory, content: bytes) -> None:
    """The file is damaged, or of a version that did not encrypt."""
    path = state.path / "identity.key"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(SettingsError, match=r"identity\.key is damaged, or of a .*: put it back"):
        state.secret("identity.key", bytes)
    assert content == path.read_bytes()


@pytest.mark.parametrize("place", [-60, -48, -1])
def test_a_sealed_secret_is_authenticated_with_the_name_of_its_file(place: int) -> None:
    """Nonce, content and tag cannot be changed, nor can two secrets of a directory be swapped."""
    key = StateKey(bytes(32), Path("state.key"))
    sealed = key.seal_secret("a.key", b"x" * 32)
    changed = bytearray(sealed)
    changed[place] ^= 1
    assert b"x" * 32 == key.open_secret("a.key", sealed)
    assert sealed != key.seal_secret("a.key", b"x" * 32)

    for wrong in (bytes(changed), sealed[:-1]):
        with pytest.raises(SettingsError):
            key.open_secret("a.key", wrong)
    with pytest.raises(SettingsError, match="for another file"):
        key.open_secret("b.key", sealed)


@pytest.mark.parametrize("left", [None, b""], ids=["missing", "empty"])
@pytest.mark.parametrize(
    "other",
    ["keys.json", "hpke-00.key", "token-00.key", "permanent.key", "address", "unsaved/keys.json"],
)
def test_a_database_that_is_missing_beside_files_of_a_start_is_refused(
    tmp_path: Path, left: bytes | None, other: str
) -> None:
    """Keys may be made before the first start; a confirmation is used up by a start."""
    state = StateDirectory.open(tmp_path)
    path = tmp_path / "party.sqlite"
    if left is not None:
        path.write_bytes(left)
    for name in ("identity.key", "witness.key"):
        state.secret(name, lambda: b"key")
    state.publish("clock.json", "")
    assert path == state.database(path.name)

    (tmp_path / other).parent.mkdir(exist_ok=True)
    state.publish(other, "")
    with pytest.raises(SettingsError, match=f"while {other} is there: .* keys confirm-restore"):
        state.database(path.name)
    state.publish(RESTORE_CONFIRMED, "")
    assert path == state.database(path.name)
    state.started()
    with pytest.raises(SettingsError, match="keys confirm-restore"):
        state.database(path.name)
    path.write_bytes(b"rows")
    assert path == state.database(path.name)
