from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.issuer.token_keys import HeldKey, TokenKeys
from tests.support.issuers import pending


def test_keys_survive_a_restart_and_are_sealed(tmp_path: Path) -> None:
    """The file shows neither the private key nor the end; it opens under its own name only."""
    state = StateDirectory.open(tmp_path / "state")
    made = HeldKey.generate(100, now=99.5)
    TokenKeys(state).hold(made)
    public = made.signing_key.token_key()
    again = TokenKeys(StateDirectory.open(tmp_path / "state"))
    held, token = again.find(public.key_id, 99.9), pending(public, 1)
    [name] = state.names("token-*.key")
    content = (state.path / name).read_bytes()

    assert frozenset({public.key_id.hex()}) == again.held()
    assert token.finalize(held.signing_key.blind_sign(token.blinded()))
    for secret in (held.private, held.private[30:90], held.person_key, held.to_bytes()[:20]):
        assert secret not in content
    assert repr(held) == "HeldKey(end=100)"
    (state.path / name).rename(state.path / f"token-{bytes(32).hex()}.key")
    with pytest.raises(SettingsError, match="does not open"):
        TokenKeys(state)


def test_each_key_hashes_persons_in_its_own_way() -> None:
    """Two keys' hashes of one person are unrelated; half a character is no obstacle."""
    one, other = (HeldKey(end=1, person_key=bytes([n]) * 32, private=b"") for n in range(2))

    assert one.tag("Ada") == one.tag("Ada") != other.tag("Ada")
    assert one.tag("Ada") != one.tag("Bo")
    assert one.tag("\ud800") != one.tag("\ud801")


def test_a_damaged_key_file_stops_the_start(tmp_path: Path) -> None:
    """The message names the file."""
    state = StateDirectory.open(tmp_path / "state")
    state.secret("token-00.key", lambda: bytes(40))

    with pytest.raises(SettingsError, match=r"token-00\.key.* too short"):
        TokenKeys(state)
