"""Admission of calls at a gRPC server; see `admission.py`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import grpc

from shuffledp.common.errors import CallerError, WireError
from shuffledp.common.runtime import access, peer, tls
from shuffledp.common.runtime.admission import (
    FORESEEN,
    NOT_ARRIVED,
    Admission,
    AdmittedCall,
    Deadline,
    read_message,
)

M = TypeVar("M")
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]

SERVICE_ERROR: Final = (FORESEEN, ("grpc-retry-pushback-ms", "-1"))
"""Trailers of every ShuffleDpError except OverloadError; see FORESEEN."""


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """
    Admits calls by the access table (`access.py`), and answers errors.

    A ShuffleDpError is answered with its status, any other error with INTERNAL and no details.
    """

    def __init__(self, admission: Admission, callers: tls.VerifiedCallers | None = None) -> None:
        """Admit calls to one server; `callers` is None where callers have no certificates."""
        self._admission = admission
        self._callers = callers
        self._handlers: dict[str, Any] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:  # noqa: ANN401  # gRPC's types vary
        """
        Wrap a method's handler, once. The wrapper reads bytes, and parses them in a read slot.

        Methods that stream answers are refused, since such calls could last indefinitely. The
        exception is reflection, which has a deadline.
        """
        method = handler_call_details.method
        if method not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[method] = self._wrapped(handler, access.CALLS.get(method))
        return self._handlers[method]

    def _wrapped(self, handler: Any, call: access.Call | None) -> Any:  # noqa: ANN401
        if not handler.response_streaming:
            behaviour = _refused if call is None else self._admitted(handler, call)
            return grpc.stream_unary_rpc_method_handler(self._guarded(behaviour))
        if call is None or call.kind is not access.CallKind.REFLECTION:
            return None
        conversing = self._guarded(self._conversing(handler, call))
        return grpc.stream_stream_rpc_method_handler(conversing)

    def _guarded(self, method: Callable[..., Awaitable[Any]]) -> Any:  # noqa: ANN401  # gRPC's types vary
        async def call(requests: AsyncIterator[bytes], context: Any) -> Any:  # noqa: ANN401
            try:
                return await method(requests, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001  # no details may reach the caller
                refusal = self._refusal(error)
            # Not inside `except`: gRPC keeps the exception that abort raises in a reference cycle,
            # which would keep the error's frames, and so the request, until they are collected.
            await context.abort(*refusal)
            return None

        return call

    def _refusal(self, error: Exception) -> tuple[grpc.StatusCode, str, Sequence[tuple[str, str]]]:
        """Report an error, and return the status, message and metadata that answer it."""
        status, message, is_foreseen = self._admission.refusal(error)
        return grpc.StatusCode[status], message, SERVICE_ERROR if is_foreseen else ()

    def _admitted(self, handler: Any, call: access.Call) -> Any:  # noqa: ANN401
        parse, serialize = handler.request_deserializer, handler.response_serializer
        ours = call.kind is not access.CallKind.HEALTH  # gRPC's own servicer needs gRPC's context

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401
            held = self._admit(call, context)
            # Closed later than the method returns: gRPC holds the answer until it has been read.
            context.add_done_callback(held.close)
            try:
                async with held.deadline:
                    if not handler.request_streaming:
                        return await held.run(
                            partial(_only, requests),
                            partial(read_message, parse),
                            lambda request: handler.unary_unary(request, held if ours else context),
                            serialize,
                        )
                    held.arrived()
                    messages = (read_message(parse, raw) async for raw in requests)
                    answer = await handler.stream_unary(messages, context)
                    sent: bytes = serialize(answer)
                    return sent
            except BaseException:
                held.close()
                raise

        return behaviour

    def _admit(self, call: access.Call, context: Any) -> AdmittedCall:  # noqa: ANN401
        """Check the caller and the limits, and return the admitted call."""
        if call.caller not in access.OPEN:
            names = None
            if self._callers is not None:
                certificate = b"".join(context.auth_context().get("x509_pem_cert", ()))
                names = self._callers.verified(certificate)
            metadata = context.invocation_metadata()
            self._admission.check_caller(call, names, access.bearer_token(metadata))
            access.CALLER_NAMES.set(names)  # in the context of this call's own asyncio task
        return self._admission.admit(call, peer_of(context.peer(), self._admission.relays))

    def _conversing(self, handler: Any, call: access.Call) -> Any:  # noqa: ANN401
        """Serve a bidirectional stream: read each request after the previous answer is sent."""
        parse, serialize = handler.request_deserializer, handler.response_serializer
        limits = call.kind.value

        async def parsed(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            while True:
                async with Deadline(limits.read_seconds, NOT_ARRIVED):
                    raw = await anext(requests, None)
                if raw is None:
                    return
                if len(raw) > access.LONG_MESSAGE:
                    raise WireError(
                        f"the request has {len(raw)} bytes; the limit of this call is "
                        f"{access.LONG_MESSAGE}"
                    )
                yield read_message(parse, raw)

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> None:  # noqa: ANN401
            held = self._admit(call, context)
            held.arrived()
            try:
                # Answers are written here, not yielded. Otherwise, if the caller does not read, a
                # timeout would interrupt gRPC's wait, and the caller would never see the end.
                async with held.deadline:
                    async for answer in handler.stream_stream(parsed(requests), context):
                        await context.write(serialize(answer))
            finally:
                # Before gRPC is done, since a caller may not read the end of the stream for long.
                held.close()

        return behaviour


def peer_of(name: str, relays: peer.Networks = ()) -> peer.Peer:
    """Return the peer with gRPC's name for it, such as ipv4:192.0.2.1:5000 or unix:."""
    host = unquote(name.partition(":")[2].rpartition(":")[0]).strip("[]")
    return peer.Peer() if name.startswith("unix:") else peer.Peer.at(host, name, relays)


async def _refused(_requests: object, _context: object) -> None:
    raise CallerError("the access table does not list this method")


async def _only(requests: AsyncIterator[bytes]) -> bytes:
    """Read the only request of a call; raise WireError if it holds none, or several."""
    raw = await anext(requests, None)
    if raw is None:
        raise WireError("the call holds 0 requests; it must hold 1")
    if await anext(requests, None) is not None:
        raise WireError("the call holds several requests; it must hold 1")
    return raw
