"""Admission of calls: limits on their memory and time, in total, per address and per connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import DecodeError

from common.errors import (
    CallerError,
    DeadlineError,
    OverloadError,
    ShareError,
    ShuffleDpError,
    WireError,
)
from common.runtime import logs
from common.runtime.access import (
    CALLS,
    LONG_MESSAGE,
    Call,
    Caller,
    CallKind,
    OperatorToken,
    bearer_token,
    check_caller,
)
from common.runtime.concurrency import ConcurrencyLimit, Queue, address_of
from common.runtime.tls import VerifiedCallers

_NOT_ARRIVED: Final = "the request did not arrive completely"
_NOT_FINISHED: Final = "the call did not finish"
_HASTE: Final = 5
"""While other calls wait for read slots, the time to send a request is shorter by this factor."""


class Deadline:
    """Raises DeadlineError in a block that takes longer than `seconds`."""

    __slots__ = ("_refusal", "_seconds", "_timeout", "_what")

    def __init__(self, seconds: float, what: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._seconds = seconds
        self._what = what
        self._refusal: ShuffleDpError | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    @contextmanager
    def reading(self, seconds: float) -> Generator[None]:
        """Shorten the deadline to `seconds` while a request is read; reuse the timer, for speed."""
        end, whole = self._timeout.when(), (self._what, self._seconds)
        now = asyncio.get_running_loop().time
        if end is not None and (soon := now() + seconds) < end:
            self._timeout.reschedule(soon)
            self._what, self._seconds = _NOT_ARRIVED, seconds
        yield
        if self._refusal is not None:
            raise self._refusal
        self._timeout.reschedule(end)
        self._what, self._seconds = whole

    def refuse(self, error: ShuffleDpError) -> None:
        """End the block with an error, while it waits for a slot or a request."""
        self._refusal = error
        if not self._timeout.expired():
            self._timeout.reschedule(0.0)  # at once: it is past

    async def __aexit__(self, *raised: Any) -> None:  # noqa: ANN401, PYI036  # passed on to asyncio
        try:
            await self._timeout.__aexit__(*raised)
        except TimeoutError as error:
            late = DeadlineError(f"{self._what} within {self._seconds:g} seconds")
            raise self._refusal or late from error


class AdmittedCall:
    """A call that counts towards the limits until gRPC finishes it, and may hold a read slot."""

    __slots__ = ("_has_slot", "_kind", "_limit", "_queue", "address", "deadline", "peer")

    def __init__(
        self, limit: ConcurrencyLimit, queue: Queue | None, kind: CallKind, peer: str
    ) -> None:
        """Admit a call; raise OverloadError, or ShareError beyond its share or if it is minor."""
        self.peer = peer
        self.address = address_of(peer)
        self.deadline = Deadline(kind.value.seconds, _NOT_FINISHED)
        self._kind = kind.value
        self._limit = limit
        self._queue = queue
        self._has_slot = False
        if not limit.take(self):
            number = self._kind.calls
            raise limit.refusal(
                peer,
                f"no place is free in this connection's share of {number} calls of this kind",
                minor=self._kind.minor,
            )

    async def wait_for_slot(self) -> float:
        """Wait for a read slot, if calls of this kind queue; return the seconds to send in."""
        seconds = self._kind.read_seconds
        if self._queue is None:
            return seconds
        await self._queue.enter(self, seconds)
        self._has_slot = True
        return seconds / _HASTE if self._queue.is_waiting else seconds

    def settle(self, request_bytes: int = 0) -> None:
        """Keep the place, and a slot if request or answer may be long: the request has arrived."""
        self._limit.settle(self)
        if self._has_slot and self._queue is not None:
            if request_bytes > LONG_MESSAGE or self._kind.long_answers:
                self._queue.settle(self)
            else:
                self.free_slot()

    def displace(self) -> None:
        """Refuse the call, whose request has not arrived, for one with a smaller share."""
        reason = "no request came while others needed the place; retry later"
        self.deadline.refuse(ShareError(reason))

    def free_slot(self) -> None:
        """Free the read slot if the call holds one."""
        if self._has_slot and self._queue is not None:
            self._has_slot = False
            self._queue.leave(self)

    def close(self, _context: object = None) -> None:
        """Free the read slot and end the call. May be repeated."""
        self.free_slot()
        self._limit.free(self)


M = TypeVar("M")
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]

SERVICE_ERROR: Final = (("shuffledp-foreseen", "1"), ("grpc-retry-pushback-ms", "-1"))
"""Sent with the status of every ShuffleDpError except OverloadError. RESOURCE_EXHAUSTED without it
means a temporary limit, and gRPC clients retry; with it, a budget is spent, and they must not."""


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """
    Admits calls by the access table (`access.py`), and answers errors.

    A ShuffleDpError is answered with its status, any other error with INTERNAL and no details.
    """

    def __init__(
        self,
        *,
        callers: VerifiedCallers | None,
        token: OperatorToken | None,
        on_error: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        """
        Admit calls to one server, and call `on_error` with every error.

        `callers` is None where callers have no certificates, `token` without an operator.
        """
        self._callers = callers
        self._token = token
        self._on_error = on_error
        self._limits = {
            kind: ConcurrencyLimit(kind.value.calls, kind.value.peer_calls) for kind in CallKind
        }
        self._queues = {
            kind: Queue(kind.value.reads, kind.value.peer_reads)
            for kind in CallKind
            if kind.value.reads
        }
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
            self._handlers[method] = self._wrapped(handler, CALLS.get(method))
        return self._handlers[method]

    def _wrapped(self, handler: Any, call: Call | None) -> Any:  # noqa: ANN401
        if not handler.response_streaming:
            behaviour = _refused if call is None else self._admitted(handler, call)
            return grpc.stream_unary_rpc_method_handler(self._guarded(behaviour))
        if call is None or call.kind is not CallKind.REFLECTION:
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

    def _refusal(
        self, error: Exception
    ) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
        """Report an error, and return the status, message and metadata that answer it."""
        self._on_error(error)
        if isinstance(error, ShuffleDpError):
            beside = () if isinstance(error, OverloadError) else SERVICE_ERROR
            return grpc.StatusCode[error.status], str(error), beside
        logs.event("internal error", logs.error_fields(error), level="ERROR")
        return grpc.StatusCode.INTERNAL, "internal error", ()

    def _admitted(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        parse, serialize = handler.request_deserializer, handler.response_serializer

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401
            held = self._admit(call, context)
            # Closed later than the method returns: gRPC holds the answer until it has been read.
            context.add_done_callback(held.close)
            try:
                async with held.deadline:
                    if handler.request_streaming:
                        held.settle()
                        answer = await handler.stream_unary(_messages(parse, requests), context)
                    else:
                        raw = await read_request(requests, held)
                        request = read_message(parse, raw)
                        del raw
                        answer = await handler.unary_unary(request, context)
                    sent: bytes = serialize(answer)
            except BaseException:
                held.close()
                raise
            if len(sent) <= LONG_MESSAGE:
                held.free_slot()
            return sent

        return behaviour

    def _admit(self, call: Call, context: Any) -> AdmittedCall:  # noqa: ANN401
        """Check the caller and the limits, and return the admitted call."""
        if call.caller is not Caller.ANYONE:
            names = None
            if self._callers is not None:
                certificate = b"".join(context.auth_context().get("x509_pem_cert", ()))
                names = self._callers.verified(certificate)
            metadata = context.invocation_metadata()
            check_caller(call.caller, names, bearer_token(metadata), self._token)
        limit, queue = self._limits[call.kind], self._queues.get(call.kind)
        return AdmittedCall(limit, queue, call.kind, context.peer())

    def _conversing(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        """Serve a bidirectional stream: read each request after the previous answer is sent."""
        parse, serialize = handler.request_deserializer, handler.response_serializer
        limits = call.kind.value

        async def parsed(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            while True:
                async with Deadline(limits.read_seconds, _NOT_ARRIVED):
                    raw = await anext(requests, None)
                if raw is None:
                    return
                if len(raw) > LONG_MESSAGE:
                    raise WireError(
                        f"the request has {len(raw)} bytes; the limit of this call is "
                        f"{LONG_MESSAGE}"
                    )
                yield read_message(parse, raw)

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> None:  # noqa: ANN401
            held = self._admit(call, context)
            held.settle()
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


async def _refused(_requests: object, _context: object) -> None:
    raise CallerError("the access table does not list this method")


async def read_request(requests: AsyncIterator[bytes], held: AdmittedCall) -> bytes:
    """
    Wait for a read slot and read one request, unparsed: parsed, it can take 20 times the memory.

    The slot is freed here unless the request is long or the answer may be.

    Raises:
        OverloadError: No read slot was free in time, or the call was displaced.
        DeadlineError: No complete request arrived in time.
        WireError: The call holds no request, or several.
    """
    seconds = await held.wait_for_slot()
    with held.deadline.reading(seconds):
        raw = await anext(requests, None)
        if raw is None:
            raise WireError("the call holds 0 requests; it must hold 1")
        if await anext(requests, None) is not None:
            raise WireError("the call holds several requests; it must hold 1")
    held.settle(len(raw))
    return raw


async def _messages(
    parse: Callable[[bytes], M], requests: AsyncIterator[bytes]
) -> AsyncIterator[M]:
    async for raw in requests:
        yield read_message(parse, raw)


def read_message(parse: Callable[[bytes], M], raw: bytes) -> M:
    """Parse a message, or raise WireError."""
    try:
        return parse(raw)
    except DecodeError as error:
        raise WireError("the request is not a message of this call") from error
