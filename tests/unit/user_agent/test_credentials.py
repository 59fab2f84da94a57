from pathlib import Path
from typing import Final

import pytest

import user_agent.server
from common.crypto.signing import SigningIdentity
from common.errors import SettingsError, WireError
from common.runtime.state_directory import StateDirectory
from user_agent.credentials import PersonalSecrets
from user_agent.settings import UserAgentSettings

_DEVICE: Final = bytes(range(32))
_FILE: Final = "permanent.key"


def _must_not_be_made() -> bytes:
    raise AssertionError("there was a secret, and another one would be made")


def test_a_secret_does_not_print() -> None:
    """Neither as text nor as bytes."""
    secrets = PersonalSecrets(_DEVICE)

    for text in (repr(secrets), str(secrets), f"{[secrets]}"):
        assert _DEVICE.hex() not in text
        assert repr(_DEVICE)[2:-1] not in text
    assert "PersonalSecrets(not shown)" == repr(secrets)


def test_every_person_has_a_secret_of_their_own() -> None:
    """By name, which is empty for an agent of one person; another device has other secrets."""
    people = ("", "Ada", "ada", "Ada ", "Bo", "Ä")
    first = [PersonalSecrets(_DEVICE).of(person) for person in people]
    again = [PersonalSecrets(_DEVICE).of(person) for person in people]

    assert first == again
    assert len(people) == len(set(first))
    assert {32} == {len(secret) for secret in first}
    assert not {_DEVICE, PersonalSecrets(bytes(32)).of("Ada")} & set(first)


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_secret_of_another_length_is_refused(length: int) -> None:
    """The message has the length, not the bytes."""
    with pytest.raises(WireError, match=f"has {length} bytes; it must have 32") as caught:
        PersonalSecrets(b"\xab" * length)
    assert "abab" not in str(caught.value)


async def test_a_restarted_agent_keeps_its_secret(tmp_path: Path) -> None:
    """It is made on first start, encrypted and private."""
    settings = _settings(tmp_path, lasting_responses=True)
    secrets, sealed = [], []
    for _ in range(2):
        service = await user_agent.server.start(settings)
        await service.stop()
        state = StateDirectory.open(settings.state_directory)
        secrets.append(state.secret(_FILE, _must_not_be_made))
        sealed.append((settings.state_directory / _FILE).read_bytes())

    assert secrets[0] == secrets[1]
    assert sealed[0] == sealed[1]
    assert secrets[0] not in sealed[0]
    assert 0o600 == (settings.state_directory / _FILE).stat().st_mode & 0o777


async def test_a_lost_secret_is_not_replaced(tmp_path: Path) -> None:
    """Answers with other noise would break the promise. Without lasting ones none is needed."""
    settings = _settings(tmp_path, lasting_responses=True)
    await (await user_agent.server.start(_settings(tmp_path, lasting_responses=False))).stop()
    assert not (settings.state_directory / _FILE).exists()
    await (await user_agent.server.start(settings)).stop()
    kept = (settings.state_directory / _FILE).read_bytes()
    (settings.state_directory / _FILE).unlink()

    with pytest.raises(SettingsError, match="is not the secret of earlier answers"):
        await user_agent.server.start(settings)
    await (await user_agent.server.start(_settings(tmp_path, lasting_responses=False))).stop()
    (settings.state_directory / _FILE).write_bytes(kept)
    await (await user_agent.server.start(settings)).stop()


def _settings(tmp_path: Path, *, lasting_responses: bool) -> UserAgentSettings:
    return UserAgentSettings(
        state_directory=tmp_path / "state",
        listen=f"unix:{tmp_path}/agent.sock",
        plaintext=True,
        shuffler="127.0.0.1:1",
        analyzer_identity=SigningIdentity.generate().public_identity().raw.hex(),
        lasting_responses=lasting_responses,
    )
