"""The issuer over TLS: its keys, its people's tokens, and restarts."""

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

import shuffledp.issuer.server
from shuffledp.analyzer.witness_client import RemoteWitness
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.privacy_tokens import TokenKey
from shuffledp.common.crypto.signing import PROOF_BYTES, PublicIdentity
from shuffledp.common.errors import PeerRefusalError
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.common.runtime.tls import development_files
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import Checkpoint, NoteKey, log_key
from shuffledp.common.transparency.merkle import EMPTY_ROOT
from shuffledp.common.wire.issuance import MAX_BULK_TOKENS
from shuffledp.deploy.clients.issuer import IssuerClient, fetch_tokens
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.protos.shuffledp.v1 import issuer_pb2
from shuffledp.user_agent.clients import RemoteIssuer
from tests.support.http_calls import HttpConnection
from tests.support.id_tokens import AUDIENCE, KEY_SET, PROVIDER, signed
from tests.support.issuers import CHALLENGE, ISSUER_NAME, SECRETS, pending, people_file
from tests.support.scrapes import scrape
from tests.support.transparency import LOG_IDENTITY


class _Issuer:
    """A service with its operator and a device, on a clock under control."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(time.time())
        self.credentials: dict[str, Any] = {"people": people_file(folder / "people.txt")}

    async def start(self, **changes: Any) -> None:
        """Start, or restart on the same files."""
        settings: dict[str, Any] = {
            "state_directory": self.folder / "issuer",
            "tls_directory": self.folder / "tls",
            "issuer_name": ISSUER_NAME,
            "http_listen": "127.0.0.1:0",
        }
        self.service = await shuffledp.issuer.server.start(
            IssuerSettings(**settings | self.credentials | changes)
        )

    async def new_key(self, seconds: int) -> TokenKey:
        """Create a key as the operator."""
        token_file = self.folder / "issuer" / "operator.token"
        authority = self.folder / "tls" / "authority.pem"
        async with IssuerClient.connect(self.service.address, authority, token_file) as client:
            made = await client.create_key(int(self.clock.now()) + seconds)
        identity = (self.folder / "issuer" / "identity.pub").read_text(encoding="ascii")
        made.check(PublicIdentity.from_hex(identity, "issuer"))
        assert ISSUER_NAME == made.issuer
        return made.token_key()

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Connect as a device does, without a certificate."""
        authority = (self.folder / "tls" / "authority.pem").read_bytes()
        async with open_channel(self.service.address, "issuer", authority) as channel:
            yield channel

    async def issue(self, key: TokenKey, seed: int, credential: bytes = SECRETS["Ada"]) -> bytes:
        """Request and verify a token as a device does; return the blind signature."""
        token = pending(key, seed)
        async with self.channel() as channel:
            signature = await RemoteIssuer(channel).issue(key.key_id, token.blinded(), credential)
        assert key.is_valid_token(token.finalize(signature), CHALLENGE)
        return signature


@pytest_asyncio.fixture(loop_scope="session")
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Issuer]:
    """A running issuer with a list of people."""
    started = _Issuer(tmp_path)
    monkeypatch.setattr(shuffledp.issuer.server, "SystemClock", lambda: started.clock)
    await started.start()
    yield started
    await started.service.stop()


async def _refusal(call: Awaitable[object]) -> str:
    with pytest.raises(PeerRefusalError) as caught:
        await call
    return caught.value.status


async def test_a_person_gets_one_token_even_if_the_issuer_restarts(running: _Issuer) -> None:
    """Before and after a restart: the same signature, or a refusal."""
    key = await running.new_key(3600)
    first = await running.issue(key, 1)
    for _ in range(2):
        assert first == await running.issue(key, 1)
        assert "ALREADY_EXISTS" == await _refusal(running.issue(key, 2))
        await running.service.stop()
        await running.start()
    second = await running.issue(key, 2, SECRETS["Bo Li"])

    assert first != second
    assert "UNAUTHENTICATED" == await _refusal(running.issue(key, 3, bytes(32)))


async def test_a_person_gets_the_same_token_over_http(running: _Issuer) -> None:
    """And a stranger none. No other method is there. The certificate is one for browsers."""
    await running.service.stop()
    pair = development_files(running.folder / "browsers", "issuer", running.clock)
    authority = (running.folder / "browsers" / "authority.pem").read_bytes()
    await running.start(http_certificate=pair.certificate, http_key=pair.key)
    key = await running.new_key(3600)
    address = (running.folder / "issuer" / "http_address").read_text(encoding="ascii")
    connection = await HttpConnection.open(address, authority, "issuer")
    answers = []
    for secret in (SECRETS["Ada"], bytes(32)):
        request = issuer_pb2.IssueTokenRequest(
            key_id=key.key_id, blinded=pending(key, 1).blinded(), credential=secret
        )
        body = request.SerializeToString()
        answers.append(await connection.post("/shuffledp.v1.Issuer/IssueToken", body))
    answers.append(await connection.post("/shuffledp.v1.Issuer/IssueTokens", body))
    connection.close()

    signature = issuer_pb2.IssueTokenResponse.FromString(answers[0].body).blind_signature
    assert signature == await running.issue(key, 1)
    assert (401, "unauthenticated") == answers[1].error[:2]
    assert (404, b"") == (answers[2].status, answers[2].body)


async def test_many_people_get_their_tokens_in_one_call(running: _Issuer) -> None:
    """The same as in single calls and in a second run; one refused person refuses the call."""
    key = await running.new_key(3600)
    tokens = TokenSpec(issuer=ISSUER_NAME, key=key.der, proof=bytes(PROOF_BYTES))
    authority = running.folder / "tls" / "authority.pem"
    async with IssuerClient.connect(running.service.address, authority) as client:

        async def fetch(*credentials: bytes) -> list[bytes]:
            digest, shown = TaskDigest(bytes(32)), list[int]()
            found = await fetch_tokens(
                client, tokens, digest, credentials, seed=bytes(32), progress=shown.append
            )
            assert len(credentials) == sum(shown)
            return found

        first = await fetch(SECRETS["Ada"])
        both = await fetch(SECRETS["Bo Li"], SECRETS["Ada"])
        assert first == both[1:]
        assert all(key.is_valid_token(token, CHALLENGE) for token in both)
        assert "UNAUTHENTICATED" == await _refusal(fetch(SECRETS["Ada"], bytes(32)))
        assert [both[1], *both] == await fetch(*[SECRETS[n] for n in ("Ada", "Bo Li", "Ada")])
        one = (key.key_id, bytes(256), SECRETS["Ada"])
        for number in (0, MAX_BULK_TOKENS + 1):
            assert "INVALID_ARGUMENT" == await _refusal(client.issue([one] * number))
    assert "ALREADY_EXISTS" == await _refusal(running.issue(key, 1))


async def test_a_key_is_refused_after_its_end(running: _Issuer) -> None:
    """As is one that the issuer never had; a restart a month later destroys it."""
    key = await running.new_key(3600)
    await running.issue(key, 1)
    running.clock.seconds += 3600
    assert "FAILED_PRECONDITION" == await _refusal(running.issue(key, 1))
    assert [] != list((running.folder / "issuer").glob("token-*.key"))
    await running.service.stop()
    await running.start()

    assert "FAILED_PRECONDITION" == await _refusal(running.issue(key, 1))
    assert [] != list((running.folder / "issuer").glob("token-*.key"))
    running.clock.seconds += 30 * 86_400
    await running.service.stop()
    await running.start()
    assert [] == list((running.folder / "issuer").glob("token-*.key"))
    assert "INVALID_ARGUMENT" == await _refusal(running.new_key(-1))


async def test_only_the_operator_creates_keys(running: _Issuer) -> None:
    """Without the token, or with another."""
    async with running.channel() as channel:
        for metadata in ((), (("authorization", "Bearer nonsense"),)):
            call: Any = channel.unary_unary("/shuffledp.v1.Issuer/CreateTokenKey")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"", timeout=20, metadata=metadata)
            assert grpc.StatusCode.UNAUTHENTICATED is caught.value.code()


async def test_id_tokens_are_credentials_too(running: _Issuer) -> None:
    """A valid one gets a token; an expired or forged one does not. The person is the subject."""
    await running.service.stop()
    keys = running.folder / "keys.json"
    keys.write_bytes(KEY_SET)
    running.credentials = {"oidc_issuer": PROVIDER, "oidc_audience": AUDIENCE, "oidc_keys": keys}
    await running.start(metrics_listen="127.0.0.1:0")
    now = running.clock.now()
    valid: dict[str, Any] = {"iat": now, "exp": now + 60}
    key = await running.new_key(3600)
    first = await running.issue(key, 1, signed(**valid).encode())

    later = signed(algorithm="ES256", **valid, jti="another sign-in").encode()
    assert first == await running.issue(key, 1, later)
    assert "ALREADY_EXISTS" == await _refusal(running.issue(key, 2, later))
    await running.issue(key, 2, signed(**valid, sub="other").encode())
    for wrong in (signed(), signed(**valid)[:-3], signed(**valid, aud="other"), "secret"):
        assert "UNAUTHENTICATED" == await _refusal(running.issue(key, 3, wrong.encode()))
    assert "INVALID_ARGUMENT" == await _refusal(running.issue(key, 3, bytes(8193)))
    series = await scrape(running.folder / "issuer")
    assert 1 == series["shuffledp_token_keys", ()]
    assert 0 == series["shuffledp_tokens_issued_total", ()]


async def test_the_issuer_cosigns_the_log_that_it_pins(running: _Issuer) -> None:
    """Beside its own service, and no other log."""
    await running.service.stop()
    await running.start(analyzer_identity=LOG_IDENTITY.public_identity().raw.hex())
    folder = running.folder / "issuer"
    key = NoteKey.parse((folder / "witness.pub").read_text(encoding="ascii"))
    authority = (running.folder / "tls" / "authority.pem").read_bytes()
    link = RemoteWitness(running.service.address, key, authority)
    head = Checkpoint(origin=log_key(LOG_IDENTITY.public_identity()).name, size=0, root=EMPTY_ROOT)
    size, line = await link.add_checkpoint(0, (), head.sign(LOG_IDENTITY))

    assert (0, key.name) == (size, line and line.name)
    assert key.name.startswith("issuer/")
    with pytest.raises(PeerRefusalError, match="not signed by the log"):
        await link.add_checkpoint(0, (), replace(head, origin="x").sign(LOG_IDENTITY))
