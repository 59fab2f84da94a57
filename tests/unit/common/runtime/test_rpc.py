import json
import logging
import time
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from shuffledp.common.errors import PeerError, PeerRefusalError, SettingsError, UnknownTaskError
from shuffledp.common.runtime.access import connections_of, is_local
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor
from shuffledp.common.runtime.certificates import PARTIES, Authority
from shuffledp.common.runtime.rpc import bind, make_server, open_channel, reply
from shuffledp.common.runtime.tls import TlsIdentity, Trust

_MIB: Final = 1 << 20
_MOST: Final = {
    "grpc.max_receive_message_length": 4 * _MIB,
    "grpc.server_handshake_timeout_ms": 10_000,
    "grpc.max_connection_idle_ms": 300_000,
    "grpc.max_connection_age_ms": 3_600_000,
    "grpc.max_connection_age_grace_ms": 3_610_000,
    "grpc.max_allowed_incoming_connections": 8192,
    "grpc.max_concurrent_streams": 1024,
    "grpc.server.max_pending_requests": 4096,
    "grpc.server.max_pending_requests_hard_limit": 8192,
    "grpc.http2.lookahead_bytes": 16 * 1024,
}


@pytest.mark.parametrize("service", ["UserAgent", "Shuffler", "Analyzer"])
def test_a_server_has_bounded_resources(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission is the last interceptor, and no other process can share the port."""
    given: dict[str, Any] = {}
    interceptor = AdmissionInterceptor(Admission())
    monkeypatch.setattr(grpc.aio, "server", lambda **fields: given.update(fields))
    make_server(interceptor, connections_of(f"shuffledp.v1.{service}"))
    options = dict(given["options"])

    assert {} == {
        name: options.get(name) for name, most in _MOST.items() if not 0 < options[name] <= most
    }
    assert 0 < given["maximum_concurrent_rpcs"] <= 4096
    assert interceptor is given["interceptors"][-1]
    assert 0 == options["grpc.so_reuseport"]


@pytest.mark.parametrize("party", PARTIES)
def test_a_channel_accepts_only_the_called_partys_certificate(
    party: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its authority alone is trusted; answers are bounded, and only safe calls are retried."""
    opened: list[tuple[str, Any, dict[str, Any]]] = []
    monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda *parts: parts)
    monkeypatch.setattr(
        grpc.aio,
        "secure_channel",
        lambda address, credentials, options: opened.append((address, credentials, dict(options))),
    )
    made = {
        name: Authority.make(tmp_path, name, 0.0, name).certificate for name in (party, "issuer")
    }
    own = TlsIdentity(certificate=b"certificate", key=b"key", authority=Trust(made).to_bytes())
    open_channel("service.example:1", party, own.authority, own=own)
    [(address, credentials, options)] = opened

    assert "service.example:1" == address
    assert (made[party].pem.encode(), b"key", b"certificate") == credentials
    assert party == options["grpc.ssl_target_name_override"]
    assert 0 < options["grpc.max_receive_message_length"] <= 4 * _MIB
    configs = json.loads(options["grpc.service_config"])["methodConfig"]
    create = {"service": "shuffledp.v1.Analyzer", "method": "CreateTask"}
    [own] = [config for config in configs if create in config["name"]]
    assert "retryPolicy" not in own  # a task that is created again is another task


@pytest.mark.parametrize("address", ["service.example:1", "0.0.0.0:1", "localhost.example:1"])
def test_plaintext_channels_stay_on_loopback(address: str) -> None:
    """Any other address needs an authority."""
    with pytest.raises(SettingsError, match="loopback only"):
        open_channel(address, "shuffler", None)


@pytest.mark.parametrize(
    "address",
    ["localhost.:1", "LOCALHOST:1", "[::1]:1", "127.0.0.2:1", "[::ffff:127.0.0.1]:1", "unix:s"],
)
async def test_calls_on_this_machine_need_neither_authority_nor_proxy(address: str) -> None:
    """In every form of a loopback address."""
    channel = open_channel(address, "shuffler", None)
    await channel.close()

    assert is_local(address)
    assert not is_local("[::ffff:192.0.2.1]:1")


def test_an_internal_error_reveals_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither caller nor log sees its text, which might repeat a user's input."""
    caplog.set_level(logging.DEBUG)
    noted: list[BaseException] = []
    errors = AdmissionInterceptor(Admission(on_error=noted.append))
    for error in (ValueError("198.51.100.7 sent 42"), RuntimeError("42"), MemoryError()):
        answer = errors._refusal(error)
        assert (grpc.StatusCode.INTERNAL, "internal error", ()) == answer
    logged = "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)

    assert 3 == len(noted) == len(caplog.records)
    assert "198.51.100.7" not in logged
    assert "sent 42" not in logged
    status, sentence, _ = errors._refusal(UnknownTaskError("there is no such task"))
    assert (grpc.StatusCode.NOT_FOUND, "there is no such task") == (status, sentence)


async def _repeater(listen: str) -> tuple[grpc.aio.Server, str]:
    """Start a server that repeats messages of up to two mebibytes, and return its address."""
    repeat: Any = grpc.unary_unary_rpc_method_handler(_repeat)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 2 * _MIB)])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("Repeater", {"Repeat": repeat}),)
    )
    address = bind(server, listen, None)
    await server.start()
    return server, address


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "[::1]", "unix"])
async def test_no_proxy_is_asked_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, host: str
) -> None:
    """Here nothing listens at the proxy's address; others go through it as before."""
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    listen = f"unix:{tmp_path / 'söcket😀'}" if host == "unix" else f"{host}:0"
    server, address = await _repeater(listen)
    async with open_channel(address, "analyzer", None) as channel:
        call: Any = channel.unary_unary("/Repeater/Repeat")
        assert b"short" == await reply(call(b"short", timeout=10), "the analyzer")
    await server.stop(None)


async def test_a_message_that_is_too_large_is_refused_for_good() -> None:
    """The status in gRPC is that of an overloaded service, but no retry can help."""
    server, address = await _repeater("127.0.0.1:0")
    async with open_channel(address, "analyzer", None, receive_limit=_MIB) as channel:
        call: Any = channel.unary_unary("/Repeater/Repeat")
        assert b"short" == await reply(call(b"short"), "the analyzer")
        for mebibytes, limit in ((2, _MIB), (3, 2 * _MIB)):
            size = mebibytes * _MIB
            with pytest.raises(PeerRefusalError, match=f"has {size} bytes; the limit is {limit}"):
                await reply(call(bytes(size)), "the analyzer")
    await server.stop(None)


async def _repeat(request: bytes, _context: object) -> bytes:
    return request


async def _failure(address: str, authority: bytes) -> str:
    """Return the message of a call that cannot reach the analyzer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shuffledp.common.runtime.rpc._RETRIES", "{}")
        channel: Any = open_channel(address, "analyzer", authority)
    try:
        with pytest.raises(PeerError) as caught:
            await reply(channel.unary_unary("/some/Call")(b"", timeout=20), "the analyzer")
    finally:
        await channel.close()
    return str(caught.value)


_DAY: Final = 86_400.0


@pytest.mark.parametrize(
    ("answers_as", "made", "trusted", "cause"),
    [
        ("shuffler", 0, "own", "another party answers there"),
        ("analyzer", 0, "another", "authority or certificates do not match"),
        ("analyzer", -30 * _DAY, "own", "a certificate has expired, or a clock is wrong"),
        ("analyzer", 5 * _DAY, "own", "a certificate is not valid yet, so a clock is wrong"),
        (None, 0, "own", "it answers without TLS"),
    ],
)
async def test_a_failed_handshake_is_explained_by_its_cause(
    tmp_path: Path, answers_as: str | None, made: float, trusted: str, cause: str
) -> None:
    """Each cause that TLS knows has one sentence; a certificate lasts 14 days from `made` on."""
    authorities = {}
    for name in ("own", "another"):
        (tmp_path / name).mkdir()
        authorities[name] = Authority.make(tmp_path / name, name, time.time() + made)
    server = grpc.aio.server()
    if answers_as is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        authorities["own"].issue(tmp_path, answers_as, time.time() + made)
        pair = [(tmp_path / f"{answers_as}.{end}").read_bytes() for end in ("key", "pem")]
        credentials = grpc.ssl_server_credentials([(pair[0], pair[1])])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        authority = authorities[trusted].certificate.pem.encode()
        found = await _failure(f"127.0.0.1:{port}", authority)
    finally:
        await server.stop(None)

    assert f"the analyzer does not answer (UNAVAILABLE: {cause})" == found


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("127.0.0.1:1", "nothing listens there"),
        ("no-such-host.invalid:1", "its host name is unknown"),
        ("unix:/nowhere/agent.sock", "nothing listens there"),
    ],
)
async def test_a_failed_connection_is_explained_by_its_cause(
    tmp_path: Path, address: str, cause: str
) -> None:
    """A closed port, an unknown host and a missing socket."""
    authority = Authority.make(tmp_path, "own", time.time()).certificate.pem.encode()

    found = await _failure(address, authority)
    assert f"the analyzer does not answer (UNAVAILABLE: {cause})" == found
