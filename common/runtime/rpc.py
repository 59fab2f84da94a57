"""Calls between parties: limits, deadlines and the mapping of errors."""

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc

from shuffledp.common import errors
from shuffledp.common.runtime.access import CallKind, Connections, is_local
from shuffledp.common.runtime.admission_interceptor import SERVICE_ERROR, AdmissionInterceptor
from shuffledp.common.runtime.clock import cancel_all
from shuffledp.common.runtime.tls import Renewal, Tls, TlsIdentity, Trust, server_credentials
from shuffledp.common.wire.fields import MAX_MESSAGE_BYTES, MAX_RESULT_BYTES

T = TypeVar("T")

SHORT_DEADLINE: Final = 15.0
"""Timeout in seconds of a call about one user or one task."""
LONG_DEADLINE: Final = 600.0
"""Timeout in seconds of a call with many reports. Servers' own limits are in access.py."""
DELIVERY_DEADLINE: Final = CallKind.DELIVERY.value.seconds
"""Timeout in seconds of the delivery of a whole batch."""

_RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
"""Statuses of calls that are safe to retry. From our services, all others are refusals."""
_CAUSES: Final = (
    ("Connection refused", "nothing listens there"),
    ("No such file", "nothing listens there"),
    ("lookup", "its host name is unknown"),
    ("Hostname Verification", "another party answers there"),
    ("certificate has expired", "a certificate has expired, or a clock is wrong"),
    ("not yet valid", "a certificate is not valid yet, so a clock is wrong"),
    ("WRONG_VERSION", "it answers without TLS"),
    ("andshake", "authority or certificates do not match"),
)
"""Signs in gRPC's details of a failed connection, the most specific first, and their causes."""
_TOO_LARGE: Final = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")
"""Details that gRPC sends with RESOURCE_EXHAUSTED for a message above a size limit."""
_KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 15_000),
)
"""Detects a peer that vanished in the middle of a stream."""
_MAX_CONCURRENT_CALLS: Final = 4096
_CONNECTIONS: Final = (
    # Half-open and idle connections are closed: each takes about 70 KiB.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_allowed_incoming_connections", 8192),
    # Calls not yet accepted. By default gRPC cancels some at random from 1,000 on.
    ("grpc.server.max_pending_requests", _MAX_CONCURRENT_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * _MAX_CONCURRENT_CALLS),
    # At most 16 KiB of each call are buffered before it is read.
    ("grpc.http2.lookahead_bytes", 16 * 1024),
    ("grpc.http2.bdp_probe", 0),
)
"""Bounds on server resources before the admission interceptor sees a call."""
_RETRIES: Final = json.dumps(
    {
        "methodConfig": [
            # Creating a task or key twice makes two; every other call is safe to retry.
            {
                "name": [
                    {"service": "shuffledp.v1.Analyzer", "method": "CreateTask"},
                    {"service": "shuffledp.v1.Issuer", "method": "CreateTokenKey"},
                ]
            },
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
                },
            },
        ]
    }
)


def make_server(admission: AdmissionInterceptor, connections: Connections) -> grpc.aio.Server:
    """Create a server with bounded resources, and without services."""
    return grpc.aio.server(
        interceptors=[admission],
        maximum_concurrent_rpcs=_MAX_CONCURRENT_CALLS,
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_RESULT_BYTES),
            ("grpc.so_reuseport", 0),
            *_KEEPALIVE,
            *_CONNECTIONS,
            ("grpc.max_concurrent_streams", connections.streams),
            # Bounds ended streams that are not yet cleared. A lower bound would refuse honest
            # clients that use all their streams; without a bound, resetting streams is free.
            ("grpc.http2.max_deallocating_streams", 4 * connections.streams),
            ("grpc.max_connection_age_ms", round(1000 * connections.age_seconds)),
            ("grpc.max_connection_age_grace_ms", round(1000 * connections.grace_seconds)),
        ],
    )


def bind(
    server: grpc.aio.Server, listen: str, tls: Tls | None, *, ask_for_certificates: bool = False
) -> str:
    """
    Bind a server to host:port or unix:PATH, and return its address, or raise SettingsError.

    A Unix socket has no TLS: file permissions decide who may connect. TCP is plaintext if `tls` is
    None, which the settings allow on loopback only. Over TLS, renewed files are reloaded; with
    `ask_for_certificates`, every client needs a certificate from the authority.
    """
    on_socket = listen.startswith("unix:")
    try:
        if on_socket:
            _check_socket(Path(listen.removeprefix("unix:")))
            credentials = grpc.local_server_credentials(grpc.LocalConnectionType.UDS)
            port = server.add_secure_port(listen, credentials)
        elif tls is None:
            port = server.add_insecure_port(listen)
        else:
            credentials = server_credentials(tls.files, ask_for_certificates=ask_for_certificates)
            port = server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise errors.SettingsError(
            f"cannot listen on {listen}: the address is in use, not this machine's, or in a "
            "missing directory"
        ) from error
    return listen if on_socket else f"{listen.rpartition(':')[0]}:{port}"


def _check_socket(path: Path) -> None:
    """Refuse a non-socket, and a socket in use, which gRPC would silently take from its process."""
    if not path.exists():
        return
    if not path.is_socket():
        raise errors.SettingsError(f"cannot listen on unix:{path}: the file is not a socket")
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        raise errors.SettingsError(f"cannot listen on unix:{path}: another process listens there")


def open_channel(
    address: str,
    party: str,
    authority: bytes | None,
    *,
    own: TlsIdentity | None = None,
    receive_limit: int = MAX_MESSAGE_BYTES,
    options: Sequence[tuple[str, Any]] = (),
) -> grpc.aio.Channel:
    """
    Open a channel to a party at host:port or unix:PATH. A TLS certificate must name the party.

    `authority` is a file of trust, None for plaintext or a Unix socket: the party's authority alone
    is trusted. `own` is the certificate to present if asked. Received messages may have at most
    `receive_limit` bytes. `options` of gRPC replace those set here.

    Raises SettingsError if the address is invalid, plaintext would leave this machine, or no
    authority is trusted for the party.
    """
    _, colon, port = address.rpartition(":")
    if not (address.startswith("unix:") or (colon and port.isascii() and port.isdecimal())):
        raise errors.SettingsError(
            f"the address of the {party} is {address}; it must be host:port, or unix:PATH"
        )
    options = [
        ("grpc.max_receive_message_length", receive_limit),
        ("grpc.service_config", _RETRIES),
        ("grpc.enable_retries", 1),
        *_KEEPALIVE,
        # A proxy of the environment could not reach this machine.
        ("grpc.enable_http_proxy", 0 if is_local(address) else 1),
        *options,
    ]
    if address.startswith("unix:"):
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        return grpc.aio.secure_channel(address, credentials, options=options)
    if authority is None:
        if not is_local(address):
            raise errors.SettingsError(f"plaintext is allowed on loopback only, not to {address}")
        return grpc.aio.insecure_channel(address, options=options)
    key, certificate = (own.key or None, own.certificate or None) if own else (None, None)
    return grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials(Trust.parse(authority).roots(party), key, certificate),
        options=[*options, ("grpc.ssl_target_name_override", party)],
    )


async def reply(call: Awaitable[T], whom: str) -> T:
    """
    Wait for another party's reply. Errors refer to that party as `whom`, such as "the shuffler".

    Raises:
        PeerBusyError: The party is overloaded.
        PeerUnableError: The party cannot serve at the moment, and gave a reason; safe to retry.
        ForeignReplyError: A refusal lacks our services' trailer.
        PeerError: The party did not answer in time, or the answer is invalid; safe to retry.
        PeerRefusalError: The party refused the call, or a message exceeds a size limit.
    """
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        code, details = error.code(), error.details() or ""
        from_service = SERVICE_ERROR[0] in list(error.trailing_metadata() or ())
        exhausted = code is grpc.StatusCode.RESOURCE_EXHAUSTED
        retryable = code in _RETRYABLE
        if from_service and (exhausted or not retryable):
            raise errors.PeerRefusalError(code.name, details) from error
        if too_large := _TOO_LARGE.search(details) if exhausted else None:
            raise errors.PeerRefusalError(
                errors.WireError.status,
                f"a message to or from {whom} has {too_large[1]} bytes; the limit is "
                f"{too_large[2]}",
            ) from error
        if exhausted:
            raise errors.PeerBusyError(f"{whom} is overloaded; retry later") from error
        if from_service:
            raise errors.PeerUnableError(f"{whom} cannot serve at the moment: {details}") from error
        if not retryable:
            hint = "from a proxy, or another program or version at its address"
            raise errors.ForeignReplyError(
                f"{whom} does not answer ({code.name}: {hint})"
            ) from error
        cause = next((f": {cause}" for sign, cause in _CAUSES if sign in details), "")
        raise errors.PeerError(f"{whom} does not answer ({code.name}{cause})") from error
    if answer is None:  # gRPC could not read the answer
        raise errors.PeerError(f"the answer of {whom} is not a message of this call")
    return answer


class FreshChannel:
    """A channel that is reopened when the caller's certificate is renewed; running calls finish."""

    def __init__(
        self, address: str, party: str, tls: Tls | None, *, receive_limit: int = MAX_MESSAGE_BYTES
    ) -> None:
        """
        Open a channel with the identity in `tls`; if None, in plaintext and never renewed.

        For the other arguments and the errors see `open_channel`.
        """
        self._open = partial(open_channel, address, party, receive_limit=receive_limit)
        self._renewal = Renewal(tls.files, tls.version) if tls else None
        own = tls.identity if tls else None
        self._channel = self._open(own.authority if own else None, own=own)
        self._closing: set[asyncio.Task[None]] = set()

    def current(self) -> grpc.aio.Channel:
        """Return the channel, reopened if the certificate has been renewed."""
        renewed = self._renewal.take() if self._renewal else None
        if renewed is not None:
            closing = asyncio.ensure_future(self._channel.close(LONG_DEADLINE))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._channel = self._open(renewed.authority, own=renewed)
        return self._channel

    async def close(self) -> None:
        """Close the channel and earlier ones, with all their calls."""
        await cancel_all(self._closing)
        await self._channel.close()
