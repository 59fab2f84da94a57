"""
Admission of calls: limits on their memory and time, in total and per connection.

A connection is identified by gRPC's name for the peer, which is kept only during the connection's
calls. On a Unix socket all peers have one name, so there are no limits per connection.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
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
    names_in,
)


def is_one_connection(peer: str) -> bool:
    """Return whether gRPC's name for a peer identifies one connection."""
    return not peer.startswith("unix:")


class ConcurrencyLimits:
    """Limits on concurrent calls, by kind and by connection."""

    def __init__(self) -> None:
        self._calls: Counter[CallKind] = Counter()
        self._peer_calls: Counter[tuple[CallKind, str]] = Counter()

    def acquire(self, kind: CallKind, peer: str) -> None:
        """
        Admit one more call, which the caller must release once.

        Raises:
            OverloadError: Too many calls of this kind are running.
            ShareError: Too many are running on this connection or, if the kind is minor, in total.
        """
        limits, key = kind.value, (kind, peer)
        if self._calls[kind] >= limits.calls:
            error = ShareError if limits.minor else OverloadError
            raise error(
                f"{limits.calls} calls of this kind are running, which is the limit; retry later"
            )
        if is_one_connection(peer) and self._peer_calls[key] >= limits.peer_calls:
            raise ShareError(
                f"{limits.peer_calls} calls of this kind are running on this connection, which is "
                "its limit; retry later"
            )
        self._calls[kind] += 1
        self._peer_calls[key] += 1

    def release(self, kind: CallKind, peer: str) -> None:
        """End a call."""
        key = (kind, peer)
        self._calls[kind] -= 1
        self._peer_calls[key] -= 1
        if not self._peer_calls[key]:
            del self._peer_calls[key]


class Queue:
    """A first-in, first-out queue for slots; each connection holds at most `peer_slots`."""

    def __init__(self, slots: int, peer_slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._peer_limit = peer_slots
        self._peer_slots: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    async def enter(self, peer: str, seconds: float) -> None:
        """
        Wait for a slot, which the call holds until it leaves.

        Raises:
            OverloadError: No slot was free within `seconds`.
            ShareError: This connection's other calls held all of its slots for so long.
        """
        needed = [(self._slots, OverloadError)]
        if is_one_connection(peer):
            own = self._peer_slots.setdefault(peer, asyncio.Semaphore(self._peer_limit))
            self._present[peer] += 1
            needed.insert(0, (own, ShareError))
        held: list[asyncio.Semaphore] = []
        error: type[OverloadError] = OverloadError
        waits = any(semaphore.locked() for semaphore, _ in needed)
        try:
            async with asyncio.timeout(seconds) if waits else nullcontext():
                for semaphore, refusal in needed:
                    error = refusal
                    await semaphore.acquire()
                    held.append(semaphore)
        except BaseException as failure:
            self._release(peer, held)
            if isinstance(failure, TimeoutError):
                raise error(
                    f"the call was not read within {seconds:g} seconds; retry later"
                ) from failure
            raise

    def leave(self, peer: str) -> None:
        """Free a slot."""
        own = [self._peer_slots[peer]] if is_one_connection(peer) else []
        self._release(peer, [self._slots, *own])

    def _release(self, peer: str, held: list[asyncio.Semaphore]) -> None:
        for semaphore in held:
            semaphore.release()
        if is_one_connection(peer):
            self._present[peer] -= 1
            if not self._present[peer]:
                del self._present[peer], self._peer_slots[peer]


class AdmittedCall:
    """A call that counts towards the limits until gRPC finishes it, and may hold a read slot."""

    def __init__(
        self, limits: ConcurrencyLimits, queue: Queue | None, kind: CallKind, peer: str
    ) -> None:
        limits.acquire(kind, peer)
        self._limits = limits
        self._queue = queue
        self._kind = kind
        self._peer = peer
        self._has_slot = False

    async def wait_for_slot(self) -> None:
        """Wait for a read slot, if calls of this kind queue."""
        if self._queue is not None:
            await self._queue.enter(self._peer, self._kind.value.read_seconds)
            self._has_slot = True

    def free_slot(self) -> None:
        """Free the read slot if the call holds one."""
        if self._has_slot and self._queue is not None:
            self._has_slot = False
            self._queue.leave(self._peer)

    def close(self, _context: object = None) -> None:
        """Free the read slot and end the call. Call once."""
        self.free_slot()
        self._limits.release(self._kind, self._peer)


M = TypeVar("M")
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]

_NOT_ARRIVED: Final = "the request did not arrive completely"
_NOT_FINISHED: Final = "the call did not finish"


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
        certificates: bool,
        token: OperatorToken | None,
        on_error: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        """
        Admit calls to one server, and call `on_error` with every error.

        With `certificates`, every caller has a certificate. `token` is None without an operator.
        """
        self._certificates = certificates
        self._token = token
        self._on_error = on_error
        self._limits = ConcurrencyLimits()
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
            long = False
            try:
                async with Deadline(call.kind.value.seconds, _NOT_FINISHED) as deadline:
                    if handler.request_streaming:
                        answer = await handler.stream_unary(_messages(parse, requests), context)
                    else:
                        raw = await read_request(requests, call.kind, held, deadline)
                        request = read_message(parse, raw)
                        del raw
                        answer = await handler.unary_unary(request, context)
                    sent: bytes = serialize(answer)
                long = len(sent) > LONG_MESSAGE
            finally:
                if not long:
                    held.free_slot()
            return sent

        return behaviour

    def _admit(self, call: Call, context: Any) -> AdmittedCall:  # noqa: ANN401
        """Check the caller and the limits, and return the admitted call."""
        if call.caller is not Caller.ANYONE:
            names = names_in(context.auth_context()) if self._certificates else None
            metadata = context.invocation_metadata()
            check_caller(call.caller, names, bearer_token(metadata), self._token)
        return AdmittedCall(self._limits, self._queues.get(call.kind), call.kind, context.peer())

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
            try:
                # Answers are written here, not yielded. Otherwise, if the caller does not read, a
                # timeout would interrupt gRPC's wait, and the caller would never see the end.
                async with Deadline(limits.seconds, _NOT_FINISHED):
                    async for answer in handler.stream_stream(parsed(requests), context):
                        await context.write(serialize(answer))
            finally:
                # Before gRPC is done, since a caller may not read the end of the stream for long.
                held.close()

        return behaviour


async def _refused(_requests: object, _context: object) -> None:
    raise CallerError("the access table does not list this method")


class Deadline:
    """Raises DeadlineError in a block that takes longer than `seconds`."""

    __slots__ = ("_seconds", "_timeout", "_what")

    def __init__(self, seconds: float, what: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._seconds = seconds
        self._what = what

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
        self._timeout.reschedule(end)
        self._what, self._seconds = whole

    async def __aexit__(self, *raised: Any) -> None:  # noqa: ANN401, PYI036  # passed on to asyncio
        try:
            await self._timeout.__aexit__(*raised)
        except TimeoutError as error:
            raise DeadlineError(f"{self._what} within {self._seconds:g} seconds") from error


async def read_request(
    requests: AsyncIterator[bytes], kind: CallKind, held: AdmittedCall, deadline: Deadline
) -> bytes:
    """
    Wait for a read slot and read one request, unparsed: parsed, it can take 20 times the memory.

    The slot is freed here unless the request is long or the answer may be.

    Raises:
        OverloadError: No read slot was free in time.
        DeadlineError: No complete request arrived in time.
        WireError: The call holds no request, or several.
    """
    await held.wait_for_slot()
    with deadline.reading(kind.value.read_seconds):
        raw = await anext(requests, None)
        if raw is None:
            raise WireError("the call holds 0 requests; it must hold 1")
        if await anext(requests, None) is not None:
            raise WireError("the call holds several requests; it must hold 1")
    if len(raw) <= LONG_MESSAGE and not kind.value.long_answers:
        held.free_slot()
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
