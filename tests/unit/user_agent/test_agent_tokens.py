"""A device gets its one-time token before it submits, whatever fails in between."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.errors import (
    PeerError,
    PeerRefusalError,
    PolicyError,
    ProofError,
    SettingsError,
)
from shuffledp.user_agent.credentials import CredentialFile
from shuffledp.user_agent.device_store import SubmissionState
from tests.support.devices import agent_of
from tests.support.keys import SHUFFLER
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask, published
from tests.support.tokens import ISSUER, TOKENS, MemoryIssuer, token_spec

_CASE = published(tokens=TOKENS)
_DIGEST = _CASE.signed.digest()
_ADA = bytes(31) + b"a"


class _Device:
    """A device of one person, with an issuer."""

    def __init__(self, folder: Path, case: PublishedTask = _CASE, seed: int = 1) -> None:
        self.file = folder / "credential"
        self.file.write_text(_ADA.hex(), encoding="ascii")
        self.issuer = MemoryIssuer(_ADA)
        self.shuffler = MemoryShuffler(case.signed)
        policy = generous(
            case.identity.public_identity(),
            issuer_identity=ISSUER.public_identity(),
            allow_tasks_without_tokens=False,
        )
        self.clock = ManualClock()
        own: dict[str, Any] = {"issuer": self.issuer, "credentials": CredentialFile(self.file)}
        own |= {"policy": policy, "clock": self.clock}
        self.agent = agent_of(folder, case, self.shuffler, seed=seed, **own)

    async def pending(self) -> PendingToken | bytes:
        """Return what the device keeps of its answer's token."""
        [saved] = await self.agent.store.pending()
        return await self.agent.store.token(saved)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[_Device]:
    """A device of a person who is entitled to a token."""
    made = _Device(tmp_path)
    yield made
    made.agent.store.close()


async def test_an_answer_is_submitted_with_its_token(device: _Device, tmp_path: Path) -> None:
    """The token is valid; after the answer has arrived, the device keeps nothing of it."""
    outcome = await device.agent.contribute(_DIGEST, 3, "")
    [token] = device.shuffler.tokens
    saved = await device.agent.store.find("", _DIGEST)

    assert outcome.sent
    assert TOKENS.token_key().is_valid_token(token, TOKENS.challenge(_DIGEST))
    assert saved is not None
    assert saved.envelope is not None
    assert b"" == await device.agent.store.token(saved)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("budget.sqlite*"))
    assert token[2:34] not in stored
    assert saved.envelope in stored


async def test_a_device_waits_for_its_issuer(device: _Device) -> None:
    """The saved answer and its request stay the same, and are sent once the issuer is back."""
    device.issuer.reachable = False
    with pytest.raises(PeerError, match=r"away\. Your submission is saved; the agent will retry"):
        await device.agent.contribute(_DIGEST, 3, "")
    first, envelope = await device.pending(), (await device.agent.store.pending())[0].envelope
    await device.agent.resend_pending()
    assert first == await device.pending()
    device.issuer.reachable = True
    device.shuffler.reachable = False
    await device.agent.resend_pending()
    token = await device.pending()
    device.shuffler.reachable = True
    await device.agent.resend_pending()

    assert isinstance(token, bytes)
    assert [token] == device.shuffler.tokens
    assert [envelope] == device.shuffler.received


async def test_an_unknown_credential_can_be_replaced(device: _Device) -> None:
    """The answer stays pending until the file holds a credential that the issuer accepts."""
    device.file.write_text("00" * 32, encoding="ascii")
    with pytest.raises(PeerRefusalError, match="unknown credential"):
        await device.agent.contribute(_DIGEST, 3, "")
    device.file.unlink()
    with pytest.raises(SettingsError, match="credential_file"):
        await device.agent.contribute(_DIGEST, 3, "")
    device.file.write_text(_ADA.hex(), encoding="ascii")

    assert (await device.agent.contribute(_DIGEST, 3, "")).repeated
    assert 1 == len(device.shuffler.received)


async def test_a_second_device_of_a_person_gets_no_token(device: _Device, tmp_path: Path) -> None:
    """The issuer's refusal is final, and is not sent to the shuffler."""
    await device.agent.contribute(_DIGEST, 3, "")
    (tmp_path / "other").mkdir()
    other = _Device(tmp_path / "other", seed=2)
    other.agent.issuer = device.agent.issuer
    with pytest.raises(PeerRefusalError, match="already has a token"):
        await other.agent.contribute(_DIGEST, 4, "")
    refused = await other.agent.store.find("", _DIGEST)

    assert refused is not None
    assert SubmissionState.REFUSED is refused.state
    assert [] == other.shuffler.received
    other.agent.store.close()


async def test_a_wrong_signature_is_noticed(device: _Device) -> None:
    """An issuer that signs with another key could tell its tokens apart."""
    other = TokenSigningKey(TokenSigningKey.generate())

    async def issue(key_id: bytes, blinded: bytes, credential: bytes) -> bytes:  # noqa: ARG001  # as the real one
        return other.blind_sign(b"\0" + blinded[1:])  # below any modulus of 2048 bits

    device.issuer.issue = issue  # type: ignore[method-assign]
    with pytest.raises(ProofError):
        await device.agent.contribute(_DIGEST, 3, "")
    assert isinstance(await device.pending(), PendingToken)
    assert [] == device.shuffler.received


async def test_an_answer_whose_token_comes_too_late_is_refused(device: _Device) -> None:
    """It is resent until the deadline alone."""
    device.issuer.reachable = False
    with pytest.raises(PeerError):
        await device.agent.contribute(_DIGEST, 4, "")
    device.clock.seconds = float(_CASE.task.deadline)
    with pytest.raises(PolicyError, match="deadline has passed, and the answer has no token"):
        await device.agent.contribute(_DIGEST, 4, "")
    refused = await device.agent.store.find("", _DIGEST)

    assert refused is not None
    assert SubmissionState.REFUSED is refused.state


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        *(("FAILED_PRECONDITION", 0), ("INVALID_ARGUMENT", 0), ("ALREADY_EXISTS", 0)),
        *(("UNAUTHENTICATED", 1), ("RESOURCE_EXHAUSTED", 1)),
    ],
)
async def test_an_issuers_refusal_is_final_unless_it_may_pass(
    device: _Device, status: str, sent: int
) -> None:
    """Another credential, or another period, can help; then the answer is sent with its token."""
    issue = device.issuer.issue

    async def refuse(*_: object) -> bytes:
        raise PeerRefusalError(status, "no")

    device.issuer.issue = refuse  # type: ignore[assignment]
    with pytest.raises(PeerRefusalError, match=r"^no$"):
        await device.agent.contribute(_DIGEST, 3, "")
    device.issuer.issue = issue  # type: ignore[method-assign]
    await device.agent.resend_pending()

    assert sent == len(device.shuffler.tokens)


async def test_a_token_key_of_an_earlier_task_is_refused(device: _Device) -> None:
    """Before anything is charged: nobody gets a second token of it."""
    await device.agent.contribute(_DIGEST, 3, "")
    again = dataclasses.replace(_CASE.task, nonce=bytes(32))
    signed = _CASE.identity.sign(again.to_bytes())
    device.agent.shuffler = MemoryShuffler(signed)
    with pytest.raises(PolicyError, match="an earlier task had the same token key"):
        await device.agent.contribute(signed.digest(), 3, "")
    assert await device.agent.store.find("", signed.digest()) is None


@pytest.mark.parametrize(
    ("case", "error", "rule"),
    [
        (published(), PolicyError, "requires no tokens, so anybody may submit any number of times"),
        (
            published(tokens=token_spec(SHUFFLER)),
            ProofError,
            "token_key is not signed by the issuer identity",
        ),
    ],
)
async def test_a_task_without_the_issuers_tokens_is_refused(
    tmp_path: Path, case: PublishedTask, error: type[Exception], rule: str
) -> None:
    """Nothing is charged: an analyzer could make tokens of a key of its own."""
    made = _Device(tmp_path, case)
    with pytest.raises(error, match=rule):
        await made.agent.contribute(case.signed.digest(), 3, "")
    assert await made.agent.store.find("", case.signed.digest()) is None
    made.agent.store.close()


async def test_a_device_without_an_issuer_says_what_it_needs(tmp_path: Path) -> None:
    """The message names the issuer and the settings."""
    agent = agent_of(tmp_path, _CASE, MemoryShuffler(_CASE.signed))
    with pytest.raises(PolicyError, match=r"tokens of the issuer issuer\.example; set issuer, "):
        await agent.contribute(_DIGEST, 3, "")
    agent.store.close()
