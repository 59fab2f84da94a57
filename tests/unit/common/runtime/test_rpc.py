"""What gRPC is told of channels and servers; no call is made."""

import json
import logging
from typing import Any, Final

import grpc
import pytest

from common.errors import SettingsError, UnknownTaskError
from common.runtime.access import connections_of
from common.runtime.admission_interceptor import AdmissionInterceptor
from common.runtime.certificates import PARTIES
from common.runtime.rpc import make_server, open_channel
from common.runtime.tls import TlsIdentity

_OWN: Final = TlsIdentity(certificate=b"certificate", key=b"key", authority=b"authority")
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
def test_what_clients_make_a_server_hold_is_bounded(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call passes the gate, and no other process takes calls at the same port."""
    told: dict[str, Any] = {}
    gate = AdmissionInterceptor(certificates=True, token=None)
    monkeypatch.setattr(grpc.aio, "server", lambda **fields: told.update(fields))
    make_server(gate, connections_of(f"shuffledp.v1.{service}"))
    options = dict(told["options"])

    assert {} == {
        name: options.get(name) for name, most in _MOST.items() if not 0 < options[name] <= most
    }
    assert 0 < told["maximum_concurrent_rpcs"] <= 4096
    assert gate is told["interceptors"][-1]
    assert 0 == options["grpc.so_reuseport"]


@pytest.mark.parametrize("party", PARTIES)
def test_whoever_answers_must_be_the_party_that_is_called(
    party: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name in its certificate, by the authority that is trusted; what comes is bounded."""
    told: list[tuple[str, Any, dict[str, Any]]] = []
    monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda *parts: parts)
    monkeypatch.setattr(
        grpc.aio,
        "secure_channel",
        lambda address, credentials, options: told.append((address, credentials, dict(options))),
    )
    open_channel("service.example:1", party, _OWN.authority, own=_OWN)
    [(address, credentials, options)] = told

    assert "service.example:1" == address
    assert (b"authority", b"key", b"certificate") == credentials
    assert party == options["grpc.ssl_target_name_override"]
    assert 0 < options["grpc.max_receive_message_length"] <= 4 * _MIB
    configs = json.loads(options["grpc.service_config"])["methodConfig"]
    create = {"service": "shuffledp.v1.Analyzer", "method": "CreateTask"}
    [own] = [config for config in configs if create in config["name"]]
    assert "retryPolicy" not in own  # a task that is created again is another task


@pytest.mark.parametrize("address", ["service.example:1", "0.0.0.0:1", "localhost.example:1"])
def test_nothing_leaves_the_machine_in_plaintext(address: str) -> None:
    """Without an authority only loopback is called."""
    with pytest.raises(SettingsError, match="loopback only"):
        open_channel(address, "shuffler", None)


def test_an_internal_error_tells_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the caller nor the log: its words might repeat what a user sent."""
    caplog.set_level(logging.DEBUG)
    noted: list[BaseException] = []
    errors = AdmissionInterceptor(certificates=False, token=None, note=noted.append)
    for error in (ValueError("198.51.100.7 sent 42"), RuntimeError("42"), MemoryError()):
        with pytest.raises(type(error)) as caught:
            raise error
        told = errors._refusal(caught.value)
        assert (grpc.StatusCode.INTERNAL, "internal error", ()) == told
    said = "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)

    assert 3 == len(noted) == len(caplog.records)
    assert "198.51.100.7" not in said
    assert "sent 42" not in said
    status, sentence, _ = errors._refusal(UnknownTaskError("there is no such task"))
    assert (grpc.StatusCode.NOT_FOUND, "there is no such task") == (status, sentence)
