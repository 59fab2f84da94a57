from pathlib import Path
from typing import Final

import pytest

import user_agent.server
from common.crypto.signing import SigningIdentity
from common.errors import SettingsError, WireError
from common.runtime.state_directory import StateDirectory
from user_agent.credentials import SECRET_BYTES, PersonalSecrets
from user_agent.settings import UserAgentSettings

_DEVICE: Final = bytes(range(32))
_FILE: Final = "permanent.key"


def _must_not_be_made() -> bytes:
    raise AssertionError("there was a secret, and another one would be made")


def test_nothing_of_a_secret_is_shown() -> None:
    """Neither as text nor as bytes in any form, wherever it is printed."""
    secrets = PersonalSecrets(_DEVICE)

    for text in (repr(secrets), str(secrets), f"{[secrets]}"):
        assert _DEVICE.hex() not in text
        assert repr(_DEVICE)[2:-1] not in text
    assert "PersonalSecrets(not shown)" == repr(secrets)


def test_a_person_has_one_secret_and_nobody_else_has_it() -> None:
    """By name; an agent of one person has no name, and a secret all the same."""
    people = ("", "Ada", "ada", "Ada ", "Bo", "Ä")
    first = [PersonalSecrets(_DEVICE).of(person) for person in people]
    again = [PersonalSecrets(_DEVICE).of(person) for person in people]

    assert first == again
    assert len(people) == len(set(first))
    assert {32} == {len(secret) for secret in first}


def test_a_person_s_secret_is_not_the_device_s() -> None:
    """And on another device it is another one."""
    own = PersonalSecrets(_DEVICE).of("Ada")

    assert own != _DEVICE
    assert own != PersonalSecrets(bytes(32)).of("Ada")


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_secret_of_another_length_is_refused(length: int) -> None:
    """With the length, and nothing of the bytes."""
    with pytest.raises(WireError, match=f"has {length} bytes; it must have 32") as caught:
        PersonalSecrets(b"\xab" * length)
    assert "abab" not in str(caught.value)


def test_a_secret_that_is_made_is_new_each_time() -> None:
    """From the system's randomness; two are the same with probability 2^-256."""
    first, second = PersonalSecrets.generate(), PersonalSecrets.generate()

    assert SECRET_BYTES == len(first) == len(second)
    assert first != second


async def test_a_restarted_agent_keeps_its_secret(tmp_path: Path) -> None:
    """It is made on first start, encrypted and closed to others; then it stays."""
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


async def test_who_allows_no_lasting_responses_has_no_secret(tmp_path: Path) -> None:
    """What is not there cannot be stolen."""
    settings = _settings(tmp_path, lasting_responses=False)
    await (await user_agent.server.start(settings)).stop()

    assert not (settings.state_directory / _FILE).exists()


async def test_a_secret_that_was_lost_is_not_replaced_in_silence(tmp_path: Path) -> None:
    """Answers with other noise would tell more than promised; without lasting ones it serves."""
    settings = _settings(tmp_path, lasting_responses=True)
    await (await user_agent.server.start(settings)).stop()
    kept = (settings.state_directory / _FILE).read_bytes()
    (settings.state_directory / _FILE).unlink()

    with pytest.raises(SettingsError, match="is not the secret that earlier answers"):
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
