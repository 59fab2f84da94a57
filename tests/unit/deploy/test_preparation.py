"""What is made before containers start for the first time."""

import stat
from pathlib import Path

import pytest

from analyzer.keys import AnalyzerKeys
from common.errors import SettingsError
from common.runtime.clock import SystemClock
from common.runtime.settings import KeyHolderSettings
from common.runtime.state import StateDirectory
from common.runtime.tls import TlsFiles
from deploy.docker.preparation import PARTIES, prepare

_NOW = SystemClock().now()


def _folders(tmp_path: Path) -> tuple[Path, Path]:
    secrets, states = tmp_path / "secrets", tmp_path / "states"
    for folder in (secrets, states / "analyzer", states / "shuffler"):
        folder.mkdir(parents=True)
    return secrets, states


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_starts_with_what_was_prepared(tmp_path: Path, party: str) -> None:
    """Certificate and key belong together, its state opens under its key, its token is known."""
    secrets, states = _folders(tmp_path)
    variables = prepare(secrets, states, _NOW)

    own = secrets / party
    files = TlsFiles(
        certificate=own / f"{party}.pem",
        key=own / f"{party}.key",
        authority=secrets / "authority.pem",
    )
    files.check(party, _NOW)
    files.read()
    state = StateDirectory.open(states / party / "state", own / "state.key")
    schedule = KeyHolderSettings(state_directory=state.path, plaintext=True).schedule()
    keys = AnalyzerKeys.load(state, schedule, _NOW)
    pinned = variables[f"SHUFFLEDP_{party.upper()}_IDENTITY"]
    assert pinned == keys.identity.public_identity().raw.hex()
    token = (secrets / "operator" / f"{party}.token").read_text(encoding="ascii")
    assert keys.operator_token.matches(token)


def test_preparing_again_changes_nothing(tmp_path: Path) -> None:
    """Whoever pins an identity, or copied a certificate, goes on."""
    secrets, states = _folders(tmp_path)
    first = prepare(secrets, states, _NOW)
    files = {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()}

    assert first == prepare(secrets, states, _NOW + 86400)
    assert files == {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()}


def test_what_is_secret_is_its_owners_alone(tmp_path: Path) -> None:
    """And a folder can be passed through to a file whose name is known, but not listed."""
    secrets, states = _folders(tmp_path)
    prepare(secrets, states, _NOW)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [secrets, *secrets.rglob("*")]}
    secret = {path for path in modes if path.suffix in {".key", ".token"}}
    assert 8 == len(secret)
    assert {0o600} == {modes[path] for path in secret}
    assert {0o711} == {mode for path, mode in modes.items() if path.is_dir()}


def test_state_without_its_key_is_not_covered_up(tmp_path: Path) -> None:
    """Secrets that were removed while the volumes stayed: nothing is made in their place."""
    secrets, states = _folders(tmp_path)
    prepare(secrets, states, _NOW)
    (secrets / "analyzer" / "state.key").unlink()

    with pytest.raises(SettingsError, match=r"state\.key, is missing"):
        prepare(secrets, states, _NOW)
