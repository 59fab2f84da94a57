import dataclasses
import hmac
from pathlib import Path
from typing import Any, Final

import pytest

import shuffledp.user_agent.server
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError, WireError
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.user_agent.credentials import CredentialFile, PersonalSecrets
from shuffledp.user_agent.settings import UserAgentSettings

_DEVICE: Final = bytes(range(32))
_FILE: Final = "permanent.key"


def test_a_secret_does_not_print() -> None:
    """Its repr has it neither as text nor as bytes."""
    secrets = PersonalSecrets(_DEVICE)

    for text in (repr(secrets), str(secrets), f"{[secrets]}"):
        assert _DEVICE.hex() not in text
        assert repr(_DEVICE)[2:-1] not in text
    assert "PersonalSecrets(not shown)" == repr(secrets)


def test_every_person_has_a_secret_of_their_own() -> None:
    """A secret derives from the device's and from the name, empty for an agent of one person."""
    people = ("", "Ada", "ada", "Ada ", "Bo", "Ä")
    first = [PersonalSecrets(_DEVICE).of(person) for person in people]
    again = [PersonalSecrets(_DEVICE).of(person) for person in people]

    assert first == again
    assert hmac.digest(_DEVICE, b"shuffledp v1 person\0Ada", "sha256") == first[1]
    assert len(people) == len(set(first))
    assert {32} == {len(secret) for secret in first}
    assert not {_DEVICE, PersonalSecrets(bytes(32)).of("Ada")} & set(first)


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_secret_of_another_length_is_refused(length: int) -> None:
    """The message has the length, not the bytes."""
    with pytest.raises(WireError, match=f"has {length} bytes; it must have 32") as caught:
        PersonalSecrets(b"\xab" * length)
    assert "abab" not in str(caught.value)


async def test_a_secret_is_made_once_and_never_replaced(tmp_path: Path) -> None:
    """The first start creates it, encrypted and private; only lasting responses need it."""
    settings = _settings(tmp_path, lasting_responses=True)
    without = _settings(tmp_path, lasting_responses=False)
    file = settings.state_directory / _FILE
    await (await shuffledp.user_agent.server.start(without)).stop()
    assert not file.exists()
    await (await shuffledp.user_agent.server.start(settings)).stop()
    kept = file.read_bytes()
    secret = StateDirectory.open(settings.state_directory).secret(_FILE, bytes)
    assert secret not in kept
    assert 0o600 == file.stat().st_mode & 0o777
    await (await shuffledp.user_agent.server.start(settings)).stop()
    assert kept == file.read_bytes()

    file.unlink()
    with pytest.raises(SettingsError, match="is not the secret of earlier answers"):
        await shuffledp.user_agent.server.start(settings)
    await (await shuffledp.user_agent.server.start(without)).stop()
    file.write_bytes(kept)
    await (await shuffledp.user_agent.server.start(settings)).stop()


def _settings(tmp_path: Path, *, lasting_responses: bool) -> UserAgentSettings:
    return UserAgentSettings(
        state_directory=tmp_path / "state",
        listen=f"unix:{tmp_path}/agent.sock",
        plaintext=True,
        shuffler="127.0.0.1:1",
        analyzer_identity=SigningIdentity.generate().public_identity().raw.hex(),
        shuffler_identity=SigningIdentity.generate().public_identity().raw.hex(),
        lasting_responses=lasting_responses,
        allow_tasks_without_tokens=True,
        allow_unlogged_tasks=True,
    )


async def test_a_second_shuffler_is_announced_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """When it is first pinned, and for each that is pinned."""
    without = _settings(tmp_path, lasting_responses=False)
    first, second = (SigningIdentity.generate().public_identity().raw.hex() for _ in range(2))
    said = []
    for pinned in (None, first, first, None, second, first):
        caplog.clear()
        settings = dataclasses.replace(without, relay_identity=pinned)
        await (await shuffledp.user_agent.server.start(settings)).stop()
        said.append(sum("nothing bounds what both learn" in each for each in caplog.messages))

    assert [0, 1, 0, 0, 1, 0] == said


def test_a_credential_is_found_by_name_or_is_the_only_one(tmp_path: Path) -> None:
    """Secrets are hexadecimal digits, ID tokens any other text; no error repeats one."""
    path, secret = tmp_path / "credentials.txt", "ab" * 32
    file = CredentialFile(path)
    path.write_text(f"\nAda L {secret}\nBo eyJ.eyJ.abc\n", encoding="utf-8")

    assert [bytes.fromhex(secret), b"eyJ.eyJ.abc"] == file.all()
    assert [bytes.fromhex(secret), b"eyJ.eyJ.abc"] == [file.of(name) for name in ("Ada L", "Bo")]
    with pytest.raises(SettingsError, match=r"has 2 credentials of one person; it must have one$"):
        file.of("")
    with pytest.raises(SettingsError, match=r"/credentials.txt has no credential of 'Ada'$"):
        file.of("Ada")
    path.write_text(f"Ada L {secret}", encoding="utf-8")
    assert bytes.fromhex(secret) == file.of("")
    path.write_bytes(b"\xff" + secret.encode())
    with pytest.raises(SettingsError, match="is not UTF-8 text") as caught:
        file.all()
    assert secret not in str(caught.value)
    path.unlink()
    with pytest.raises(SettingsError, match=r"credentials\.txt, cannot be read: No such file"):
        file.all()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"allow_tasks_without_tokens": False}, "set issuer, .* or allow_tasks_without_tokens"),
        ({"issuer": "127.0.0.1:1"}, "issuer, issuer_identity and credential_file belong together"),
        ({"credential_file": Path("secret")}, "credential_file belong together"),
    ],
)
def test_a_device_has_an_issuer_or_says_that_it_needs_none(
    tmp_path: Path, changes: dict[str, Any], rule: str
) -> None:
    """By default it answers no task without tokens."""
    with pytest.raises(SettingsError, match=rule):
        dataclasses.replace(_settings(tmp_path, lasting_responses=False), **changes)
