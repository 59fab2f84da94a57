from pathlib import Path

import pytest

from common.errors import SettingsError
from common.runtime.state_directory import StateDirectory, StateKey, _write_new


def _state(path: Path) -> StateDirectory:
    return StateDirectory.open(path / "state")


def test_a_copy_of_the_directory_alone_opens_nothing(tmp_path: Path) -> None:
    """The secret is in no file of it; its key lies beside it, with mode 0600."""
    secret = bytes(range(32))
    assert secret == _state(tmp_path).secret("identity.key", lambda: secret)

    files = [path.read_bytes() for path in (tmp_path / "state").iterdir()]
    assert len(files) == 1
    assert not any(secret in content for content in files)
    assert 0o600 == (tmp_path / "state.key").stat().st_mode & 0o777
    assert 32 == len((tmp_path / "state.key").read_bytes())
    assert secret == _state(tmp_path).secret("identity.key", bytes)


def test_the_key_may_lie_anywhere(tmp_path: Path) -> None:
    """Where `state_key` says, and then not beside the directory."""
    where = tmp_path / "elsewhere"
    state = StateDirectory.open(tmp_path / "state", where)
    state.secret("identity.key", lambda: b"x" * 32)

    assert where.exists()
    assert not (tmp_path / "state.key").exists()


def test_another_key_file_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    """It names the setting, the secret and the file that was tried."""
    _state(tmp_path).secret("identity.key", lambda: b"x" * 32)
    (tmp_path / "state.key").write_bytes(StateKey.generate())

    with pytest.raises(SettingsError, match=r"identity\.key .* state_key names, .*state\.key"):
        _state(tmp_path).secret("identity.key", bytes)


def test_a_lost_key_file_is_not_replaced_by_another(tmp_path: Path) -> None:
    """A second one would leave the directory half under each; the message says what to do."""
    _state(tmp_path).secret("identity.key", lambda: b"x" * 32)
    (tmp_path / "state.key").unlink()

    with pytest.raises(SettingsError, match=r"is missing, and identity.key .* put it back"):
        _state(tmp_path).secret("other.key", lambda: b"y" * 32)
    assert not (tmp_path / "state.key").exists()
    assert not (tmp_path / "state" / "other.key").exists()


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_file_of_another_length_is_refused(tmp_path: Path, length: int) -> None:
    """Text with a line end, for example."""
    (tmp_path / "state.key").write_bytes(bytes(length))
    (tmp_path / "state.key").chmod(0o600)

    with pytest.raises(SettingsError, match=f"state_key names, .*, has {length} bytes; it must"):
        _state(tmp_path).secret("identity.key", bytes)


def test_a_key_file_that_cannot_be_made_or_read_is_a_sentence(tmp_path: Path) -> None:
    """No folder, or a folder in its place: never a traceback."""
    for where in (tmp_path / "nowhere" / "key", tmp_path):
        state = StateDirectory.open(tmp_path / "state", where)
        with pytest.raises(SettingsError, match=r"state_key names|mode"):
            state.secret("identity.key", lambda: b"x" * 32)


def test_a_secret_is_bound_to_the_name_of_its_file(tmp_path: Path) -> None:
    """Nobody swaps one batch's key, or the identity, for another secret of the directory."""
    state = _state(tmp_path)
    state.secret("a.key", lambda: b"a" * 32)
    state.secret("b.key", lambda: b"b" * 32)
    (tmp_path / "state" / "a.key").write_bytes((tmp_path / "state" / "b.key").read_bytes())

    with pytest.raises(SettingsError, match="for another file"):
        state.secret("a.key", bytes)


def test_no_changed_bit_of_a_secret_is_accepted() -> None:
    """Nonce, content and tag are authenticated; without its mark a file is none of ours."""
    key = StateKey(bytes(32), Path("state.key"))
    sealed = key.seal("a.key", b"x" * 32)
    mark = len(sealed) - 12 - 32 - 16
    assert b"x" * 32 == key.open("a.key", sealed)

    for bit in range(8 * mark, 8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(SettingsError):
            key.open("a.key", bytes(changed))
    for length in range(mark, len(sealed)):
        with pytest.raises(SettingsError):
            key.open("a.key", sealed[:length])


def test_one_secret_is_never_sealed_twice_alike() -> None:
    """A fresh nonce each time."""
    key = StateKey(bytes(32), Path("state.key"))

    assert key.seal("a.key", b"x") != key.seal("a.key", b"x")


def test_what_an_operator_reads_stays_readable(tmp_path: Path) -> None:
    """The token is closed to others, and not encrypted."""
    state = _state(tmp_path)
    state.plain_secret("operator.token", lambda: b"token")

    assert b"token" == (tmp_path / "state" / "operator.token").read_bytes()
    assert 0o600 == (tmp_path / "state" / "operator.token").stat().st_mode & 0o777


def test_publishing_needs_no_key(tmp_path: Path) -> None:
    """What only writes addresses makes no key."""
    _state(tmp_path).publish("address", "127.0.0.1:1")

    assert not (tmp_path / "state.key").exists()


def test_a_state_key_shows_nothing_and_does_not_travel(tmp_path: Path) -> None:
    """Neither by itself nor in the directory that holds it."""
    raw = StateKey.generate()
    (tmp_path / "state.key").write_bytes(raw)
    (tmp_path / "state.key").chmod(0o600)
    state = _state(tmp_path)
    state.secret("a.key", lambda: b"x")

    for shown in (repr(state), repr(StateKey(raw, tmp_path))):
        assert repr(raw) not in shown
        assert raw.hex() not in shown
    with pytest.raises(TypeError):
        StateKey(raw, tmp_path).__reduce__()


def test_two_parties_that_make_one_key_file_at_once_agree(tmp_path: Path) -> None:
    """Whoever comes second takes the first one's key, and leaves nothing behind."""
    where = tmp_path / "shared"
    _write_new(where, b"f" * 32)
    _write_new(where, b"s" * 32)

    assert b"f" * 32 == where.read_bytes()
    assert [where] == list(tmp_path.iterdir())
    assert 0o600 == where.stat().st_mode & 0o777


@pytest.mark.parametrize("content", [b"", b"x" * 32, b"x" * 87])
def test_what_is_not_encrypted_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    """Damaged, or of a version that did not encrypt: the sentence says what to do."""
    path = tmp_path / "state" / "identity.key"
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(SettingsError, match=r"identity\.key is damaged, or of a .*: put it back"):
        _state(tmp_path).secret("identity.key", bytes)
    assert content == path.read_bytes()
