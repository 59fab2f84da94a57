import dataclasses
import hmac
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import user_agent.server
from common.crypto.hpke import envelope_context, report_context
from common.crypto.signing import TOKEN_BYTES, SigningIdentity
from common.errors import SettingsError, WireError
from common.messages.submission import unpack
from common.runtime.state_directory import StateDirectory
from common.task.draft import TextDraft
from tests.support.devices import agent_of
from tests.support.kind_tasks import kind_draft_fields
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask, published
from user_agent.credentials import PersonalSecrets, TokenFile
from user_agent.settings import UserAgentSettings

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
    await (await user_agent.server.start(without)).stop()
    assert not file.exists()
    await (await user_agent.server.start(settings)).stop()
    kept = file.read_bytes()
    secret = StateDirectory.open(settings.state_directory).secret(_FILE, bytes)
    assert secret not in kept
    assert 0o600 == file.stat().st_mode & 0o777
    await (await user_agent.server.start(settings)).stop()
    assert kept == file.read_bytes()

    file.unlink()
    with pytest.raises(SettingsError, match="is not the secret of earlier answers"):
        await user_agent.server.start(settings)
    await (await user_agent.server.start(without)).stop()
    file.write_bytes(kept)
    await (await user_agent.server.start(settings)).stop()


def _settings(tmp_path: Path, *, lasting_responses: bool) -> UserAgentSettings:
    return UserAgentSettings(
        state_directory=tmp_path / "state",
        listen=f"unix:{tmp_path}/agent.sock",
        plaintext=True,
        shuffler="127.0.0.1:1",
        analyzer_identity=SigningIdentity.generate().public_identity().raw.hex(),
        shuffler_identity=SigningIdentity.generate().public_identity().raw.hex(),
        lasting_responses=lasting_responses,
    )


def test_a_token_file_holds_one_token_a_person(tmp_path: Path) -> None:
    """A token is found by name, or in order; an error names the line and does not repeat it."""
    file, one, two = tmp_path / "tokens", bytes(TOKEN_BYTES), bytes([1]) * TOKEN_BYTES
    file.write_text(f"{one.hex()} Ada L\n\n{two.hex()}\n", encoding="utf-8")
    found = [TokenFile(file).token(person) for person in ("Ada L", "", "Bob")]
    assert [one, two, b""] == found
    assert TokenFile(None).token("Ada L") == b""
    with pytest.raises(SettingsError, match=r"^line 1 of tokens\.txt has no token") as caught:
        TokenFile(file, "tokens.txt").tokens()
    assert "Ada" not in str(caught.value)

    file.write_text(f"{two.hex()}\n\n{one.hex()}\n{two.hex()}\n", encoding="utf-8")
    assert [two, one] == TokenFile(file).tokens()
    for text in ("00", "zzz", "00" * (TOKEN_BYTES + 1)):
        file.write_text(f"{text}\n", encoding="ascii")
        with pytest.raises(SettingsError, match="line 1 of token_file has no token") as caught:
            TokenFile(file).token("")
        assert text not in str(caught.value)


_ONE_TIME: Final = TextDraft(bits=64, cohorts=8, unset=0.0, set=1.0)
"""A report is the permanent response itself: 64 bits, of which half are coins."""


@cache
def _task(round_number: int, population: str = "staff", question: str = "state") -> PublishedTask:
    """Publish a task; two rounds differ in keys and n_min."""
    return published(
        **kind_draft_fields(
            "rappor",
            texts=dataclasses.replace(_ONE_TIME, question=question),
            population=population,
            n_min=100 + round_number,
            target_size=200,
        )
    )


async def _report(
    path: Path, case: PublishedTask, person: str, text: str = "Ohio", *, seed: int = 1
) -> bytes:
    """Let an agent answer, and return the opened report."""
    shuffler, digest = MemoryShuffler(case.signed), case.signed.digest()
    path.mkdir(exist_ok=True)
    agent = agent_of(
        path, case, shuffler, seed=seed, several_persons=True, secrets=PersonalSecrets(b"s" * 32)
    )
    await agent.contribute(digest, text, person)
    agent.store.close()
    [envelope] = shuffler.received
    content = unpack(case.shuffler_key.open(envelope, envelope_context(digest)), case.task)
    return case.analyzer_key.open(content.sealed_reports, report_context(digest))


def test_permanent_responses_need_a_secret(tmp_path: Path) -> None:
    """Without one, every answer would have fresh noise, which averages out."""
    with pytest.raises(SettingsError, match="permanent responses require"):
        agent_of(tmp_path, _task(1), MemoryShuffler(_task(1).signed), secrets=None)


@pytest.mark.parametrize(
    ("second", "same"),
    [
        ({}, True),
        ({"person": "Bo"}, False),
        ({"case": _task(2, "guests")}, False),
        ({"text": "Utah"}, False),
        ({"case": _task(2, question="place of birth")}, False),
    ],
    ids=["nothing differs", "person", "population", "text", "question"],
)
async def test_responses_are_the_same_for_one_person_question_and_text(
    tmp_path: Path, second: dict[str, Any], *, same: bool
) -> None:
    """A restart changes nothing; independent responses agree with probability below 1e-7."""
    one = await _report(tmp_path, _task(1), "Ada", seed=1)
    other = await _report(tmp_path, **{"case": _task(2), "person": "Ada", "seed": 2, **second})

    assert same is (one == other)
