"""
A service's methods for devices over HTTP: Connect's unary protocol, as an ASGI application.

The request is a POST to /shuffledp.v1.SERVICE/METHOD with a message as protocol buffer or JSON, see
https://connectrpc.com/docs/protocol. Servicers, access table and admission are those of gRPC.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message

from shuffledp.common.errors import ConnectionLimitError, WireError
from shuffledp.common.limits import MAX_ENVELOPE_BYTES
from shuffledp.common.runtime.access import AGE_SECONDS, CALLS, Call, Caller
from shuffledp.common.runtime.admission import FORESEEN, NOT_ARRIVED, Admission, read_message
from shuffledp.common.runtime.http_server import HttpServer, ServerCertificate
from shuffledp.common.runtime.peer import (
    Peer,
    forwarded_address,
    is_within,
    networks,
    parse_address,
    shared_address,
)
from shuffledp.common.runtime.service import AddServices, IsServing
from shuffledp.common.runtime.settings import HttpSettings
from shuffledp.common.runtime.tls import TlsFiles

MAX_BODY_BYTES: Final = 2 * MAX_ENVELOPE_BYTES
"""Maximum bytes of a request: the longest envelope in JSON takes two thirds of them."""
MAX_SHORT_BYTES: Final = 16 * 1024
"""Maximum bytes of a request without an envelope: the longest credential takes 11 KiB in JSON."""
_LONG_REQUEST: Final = "/shuffledp.v1.Shuffler/Submit"
_MAX_MARKS: Final = 16
"""Maximum of the characters [, { and , in JSON. Devices' requests are flat, with up to three
fields; a list of a million lists would block the event loop while it is parsed."""
_PIECE: Final = 64 * 1024
"""Bytes of an answer that are sent at once."""
_NO_JSON: Final = "the request is not a message of this call in JSON"
_JSON_BLOCK: Final = 16
"""JSON is padded to a multiple of this many bytes, since `true` is shorter than `false`."""

_STATUSES: Final = {
    name: status
    for status, names in (
        (400, "INVALID_ARGUMENT FAILED_PRECONDITION"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (409, "ALREADY_EXISTS ABORTED"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL DATA_LOSS"),
        (501, "UNIMPLEMENTED"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    )
    for name in names.split()
}
"""HTTP status of an error's status, as Connect maps them."""
Headers = tuple[tuple[bytes, bytes], ...]
Fields = Mapping[bytes, bytes]
_HEADERS: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_CROSS_ORIGIN: Final[Headers] = (
    (b"access-control-expose-headers", b"shuffledp-foreseen, date"),
    (b"vary", b"origin"),
)
_PREFLIGHT: Final[Headers] = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"content-type, connect-protocol-version"),
    (b"access-control-max-age", b"7200"),
)
_FORESEEN: Final = (FORESEEN[0].encode(), FORESEEN[1].encode())
_CLOSE: Final = (b"connection", b"close")
_ENCODINGS: Final = (b"content-encoding", b"connect-content-encoding")


@dataclass(frozen=True, slots=True)
class _Format:
    media_type: bytes
    parse: Callable[[Callable[[bytes], Message], bytes], Message]
    serialize: Callable[[Message], bytes]


@dataclass(frozen=True, slots=True)
class _Method:
    call: Call
    handler: Any
    most: int
    """Maximum bytes of a request."""


def read_json(parse: Callable[[bytes], Message], raw: bytes) -> Message:
    """Parse a message in JSON; raise WireError, also for unknown fields."""
    try:
        is_flat = sum(map(raw.count, (b"[", b"{", b","))) <= _MAX_MARKS
        if is_flat and raw.lstrip()[:1] == b"{":  # an empty list would be an empty message
            return json_format.Parse(raw, parse(b""))
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise WireError(_NO_JSON) from error
    raise WireError(_NO_JSON)


def _to_json(answer: Message) -> bytes:
    text = json_format.MessageToJson(answer, indent=None).encode()
    return text + b" " * (-len(text) % _JSON_BLOCK)


_JSON: Final = _Format(b"application/json", read_json, _to_json)
_FORMATS: Final = {
    b"application/proto": _Format(
        b"application/proto", read_message, lambda answer: answer.SerializeToString()
    ),
    b"application/json": _JSON,
    b"application/json; charset=utf-8": _JSON,
}


class HttpEdge:
    """The ASGI application."""

    def __init__(
        self,
        services: Iterable[AddServices],
        admission: Admission,
        settings: HttpSettings,
        is_serving: IsServing,
    ) -> None:
        """Serve the methods of `services` that devices need; `is_serving` answers balancers."""
        self._methods: dict[bytes, _Method] = {}
        registry: Any = SimpleNamespace(  # has what generated code calls of a gRPC server
            add_generic_rpc_handlers=lambda _: None, add_registered_method_handlers=self._add
        )
        for add in services:
            add(registry)
        self._admission = admission
        self._origins = frozenset(origin.encode() for origin in settings.http_origins)
        self._proxies = networks(settings.http_proxies)
        self._is_serving = is_serving

    def _add(self, service: str, handlers: Mapping[str, Any]) -> None:
        for path, handler in ((f"/{service}/{name}", each) for name, each in handlers.items()):
            if path in CALLS and CALLS[path].caller is Caller.DEVICE:
                most = MAX_BODY_BYTES if path == _LONG_REQUEST else MAX_SHORT_BYTES
                self._methods[path.encode()] = _Method(CALLS[path], handler, most)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401  # ASGI's
        """Answer a request."""
        fields: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:  # several values form no allowed one
            fields[name] = fields[name] + b", " + value if name in fields else value
        origin, answer = fields.get(b"origin"), _Answer(send)
        if origin is not None:
            if origin not in self._origins:
                await answer(403)
                return
            answer.headers += ((b"access-control-allow-origin", origin), *_CROSS_ORIGIN)
        verb, path = scope["method"], scope["raw_path"]
        method = None if scope["query_string"] else self._methods.get(path)
        if method is not None and verb == "POST":
            await self._serve(method, fields, scope, receive, answer)
        elif method is not None and verb == "OPTIONS" and origin is not None:
            await answer(204, more=_PREFLIGHT)
        elif path == b"/healthz" and verb == "GET":
            await answer(200 if await self._is_serving() else 503)
        else:
            await answer(404)

    async def _serve(
        self,
        method: "_Method",
        fields: Fields,
        scope: Any,  # noqa: ANN401  # ASGI's
        receive: Any,  # noqa: ANN401
        answer: "_Answer",
    ) -> None:
        """Answer a call, or why it is refused."""
        form = _FORMATS.get(fields.get(b"content-type", b"").lower())
        length = fields.get(b"content-length")
        if form is None:
            await answer(415)
        elif length is None:
            await answer(411)  # a chunked body too
        elif any(fields.get(name, b"identity") != b"identity" for name in _ENCODINGS):
            compressed = _error("UNIMPLEMENTED", "a request must not be compressed")
            await answer(*compressed, more=(_FORESEEN,))
        else:
            peer = self._peer(scope, fields)
            try:
                _check(fields, int(length), method.most)
                held = self._admission.admit(method.call, peer)
                try:
                    async with held.deadline:
                        sent = await held.run(
                            partial(_body, receive),
                            partial(form.parse, method.handler.request_deserializer),
                            lambda request: method.handler.unary_unary(request, held),
                            form.serialize,
                        )
                        await answer(200, sent, form.media_type)
                finally:
                    held.close()
            except Exception as error:  # noqa: BLE001  # no details may reach the caller
                status, message, is_foreseen = self._admission.refusal(error)
                if not answer.has_begun:  # otherwise, the connection is closed
                    more: Headers = (_FORESEEN,) if is_foreseen else ()
                    own = peer.connection == scope["state"]["peer"].connection
                    if own and isinstance(error, ConnectionLimitError):
                        more += (_CLOSE,)  # a client cannot choose another connection
                    await answer(*_error(status, message), more=more)

    def _peer(self, scope: Any, fields: Fields) -> Peer:  # noqa: ANN401  # ASGI's
        """Return the connection's peer or, behind a proxy, the address that it forwards, or one."""
        peer: Peer = scope["state"]["peer"]
        host, *_ = scope["client"] or ("",)  # it may have gone
        if not (self._proxies and is_within(parse_address(host), self._proxies)):
            return peer
        address = forwarded_address(fields.get(b"x-forwarded-for", b""), self._proxies)
        if address is None:
            return Peer(peer.connection)
        if is_within(address, self._admission.relays):
            return peer
        shared = shared_address(address)
        window = int(asyncio.get_running_loop().time() // AGE_SECONDS)
        return Peer(f"{shared} {window}", shared)


def serve_http(
    settings: HttpSettings,
    files: TlsFiles | None,
    services: Iterable[AddServices],
    admission: Admission,
    is_serving: IsServing,
) -> HttpServer:
    """
    Serve the methods that devices need, with gRPC's admission; in plaintext without TLS files.

    Raises SettingsError if the address or the certificate is unusable.
    """
    certificate = None
    if files and files.certificate and files.key:
        certificate = ServerCertificate(files.certificate, files.key)
    server = HttpServer(
        HttpEdge(services, admission, settings, is_serving),
        str(settings.http_listen),
        certificate,
        hosts=settings.accepted_hosts(),
        unshared=networks((*settings.http_proxies, *settings.relays)),
    )
    server.start()
    return server


class _Answer:
    """Sends one answer."""

    __slots__ = ("_send", "has_begun", "headers")

    def __init__(self, send: Any) -> None:  # noqa: ANN401  # ASGI's
        self.headers: Headers = _HEADERS
        self.has_begun = False
        self._send = send

    async def __call__(
        self, status: int, body: bytes = b"", kind: bytes = b"", more: Headers = ()
    ) -> None:
        """Send it, in pieces that wait until the caller has read earlier ones."""
        headers = [*self.headers, *more]
        if status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(body)))
        if kind:
            headers.append((b"content-type", kind))
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        at = 0
        while len(body) - at > _PIECE:
            part = body[at : at + _PIECE]
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
            at += _PIECE
        await self._send({"type": "http.response.body", "body": body[at:]})


async def _body(receive: Any) -> bytes:  # noqa: ANN401  # ASGI's
    """Read a request's body; raise WireError if the caller ends before."""
    raw, more = bytearray(), True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise WireError(NOT_ARRIVED)
        raw += part["body"]
        more = part["more_body"]
    return bytes(raw)


def _check(fields: Fields, length: int, most: int) -> None:
    """Raise WireError if a header breaks a rule."""
    if length > most:
        raise WireError(f"the request has {length} bytes; the limit of this call is {most}")
    if fields.get(b"connect-protocol-version", b"1") != b"1":
        raise WireError("connect-protocol-version must be 1")


def _error(status: str, message: str) -> tuple[int, bytes, bytes]:
    """Return the answer to a refused call: HTTP status, body and media type."""
    body = json.dumps({"code": status.lower(), "message": message}).encode()
    return _STATUSES[status], body, _JSON.media_type
