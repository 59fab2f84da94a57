"""
Admission of calls: memory is bounded whatever clients do, and no connection exceeds its share.

Connections are told apart by gRPC's name for the peer, kept only while it has a call under way. On
a Unix socket all peers have one name, and none has a share.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar

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
    CallKind,
    OperatorToken,
    bearer_token,
    check_caller,
    names_in,
)


def is_one_connection(peer: str) -> bool:
    """Return whether gRPC's name for a peer is one connection's alone."""
    return not peer.startswith("unix:")


class ConcurrencyLimits:
    """Limits on concurrent calls, by kind and by connection."""

    def __init__(self) -> None:
        self._taken: Counter[CallKind] = Counter()
        self._shares: Counter[tuple[CallKind, str]] = Counter()

    @contextmanager
    def taken(self, kind: CallKind, peer: str) -> Generator[None]:
        """Hold a place while the block runs; OverloadError if all are taken, or ShareError."""
        limits = kind.value
        if self._taken[kind] >= limits.places:
            error = ShareError if limits.aside else OverloadError
            raise error(f"{limits.places} calls of this kind are running, the limit; retry later")
        share = (kind, peer)
        if is_one_connection(peer) and self._shares[share] >= limits.share:
            raise ShareError(
                f"{limits.share} calls of this kind are running on this connection, its "
                "limit; retry later"
            )
        self._taken[kind] += 1
        self._shares[share] += 1
        try:
            yield
        finally:
            self._taken[kind] -= 1
            self._shares[share] -= 1
            if not self._shares[share]:
                del self._shares[share]


class Queue:
    """Run a few calls at a time; the others wait, first come, first served."""

    def __init__(self, places: int, share: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._share = share
        self._shares: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, peer: str, seconds: float) -> AsyncGenerator[None]:
        """
        Wait for a turn, and hold it while the block runs.

        Raises:
            OverloadError: No turn was free in time.
            ShareError: This connection's own calls held all of its turns.
        """
        needed: list[tuple[asyncio.Semaphore, type[OverloadError]]]
        needed = [(self._places, OverloadError)]
        if is_one_connection(peer):
            own = self._shares.setdefault(peer, asyncio.Semaphore(self._share))
            self._present[peer] += 1
            needed.insert(0, (own, ShareError))
        held: list[asyncio.Semaphore] = []
        error: type[OverloadError] = OverloadError
        waits = any(semaphore.locked() for semaphore, _ in needed)
        try:
            try:
                async with asyncio.timeout(seconds if waits else None):  # as a rule without a timer
                    for semaphore, refusal in needed:
                        error = refusal
                        await semaphore.acquire()
                        held.append(semaphore)
            except TimeoutError as late:
                raise error(
                    f"the call waited {seconds:g} seconds to be read, the limit; retry later"
                ) from late
            yield
        finally:
            for semaphore in held:
                semaphore.release()
            if is_one_connection(peer):
                self._present[peer] -= 1
                if not self._present[peer]:
                    del self._present[peer], self._shares[peer]


M = TypeVar("M")
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]

_ARRIVAL: Final = "the request did not arrive completely"
_END: Final = "the call did not finish"


FORESEEN: Final = (("shuffledp-foreseen", "1"), ("grpc-retry-pushback-ms", "-1"))
"""
Sent with the status of each of the project's own errors but OverloadError. RESOURCE_EXHAUSTED
without it is a limit that may pass, and the client's library retries; with it, it is a spent
budget: a refusal, which the library must not retry.
"""


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """
    Admits calls by the table of calls (`access.py`), and answers errors.

    The project's errors become their status, anything else a bare INTERNAL.
    """

    def __init__(
        self,
        *,
        certificates: bool,
        token: OperatorToken | None,
        note: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        """
        Admit calls to one server, and call `note` with every error.

        With `certificates`, every caller has shown one; `token` is the operator's, if there is one.
        """
        self._certificates = certificates
        self._token = token
        self._note = note
        self._limits = ConcurrencyLimits()
        self._queues = {
            kind: Queue(kind.value.turns, kind.value.turns_share)
            for kind in CallKind
            if kind.value.turns
        }
        self._handlers: dict[str, Any] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:  # noqa: ANN401  # gRPC's own types vary
        """
        Wrap a method, once: bytes on this side, messages beyond.

        A stream of answers is refused, since its caller could hold the place indefinitely; except
        for reflection, which has a deadline.
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

    def _guarded(self, method: Callable[..., Awaitable[Any]]) -> Any:  # noqa: ANN401  # gRPC's own
        async def call(requests: AsyncIterator[bytes], context: Any) -> Any:  # noqa: ANN401
            try:
                return await method(requests, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001  # the last line before the wire
                refusal = self._refusal(error)
            # Not while an error is handled: gRPC keeps what abort raises in a circle of references,
            # and with it would keep that error's frames, and the request in them, until they are
            # collected.
            await context.abort(*refusal)
            return None

        return call

    def _refusal(
        self, error: Exception
    ) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
        """Return the answer to an error: status, sentence and metadata."""
        self._note(error)
        if isinstance(error, ShuffleDpError):
            beside = () if isinstance(error, OverloadError) else FORESEEN
            return grpc.StatusCode[error.status], str(error), beside
        logs.event("internal error", logs.error_fields(error), level="ERROR")
        return grpc.StatusCode.INTERNAL, "internal error", ()

    def _admitted(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        parse, serialize = handler.request_deserializer, handler.response_serializer

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401
            held = self._admit(call, context)
            peer = context.peer()
            async with _within(call.kind.value.seconds, _END), AsyncExitStack() as turn:
                if handler.request_streaming:
                    answer = await handler.stream_unary(_messages(parse, requests), context)
                else:
                    raw = await self._read(requests, call.kind, peer, turn)
                    request = read_message(parse, raw)
                    del raw
                    answer = await handler.unary_unary(request, context)
                sent: bytes = serialize(answer)
                if len(sent) > LONG_MESSAGE:
                    held.callback(asyncio.ensure_future, turn.pop_all().aclose())
            return sent

        return behaviour

    def _admit(self, call: Call, context: Any) -> ExitStack:  # noqa: ANN401
        """Check the caller, and hold a place until gRPC is done with the call."""
        names = names_in(context.auth_context()) if self._certificates else None
        check_caller(call.caller, names, bearer_token(context.invocation_metadata()), self._token)
        held = ExitStack()
        held.enter_context(self._limits.taken(call.kind, context.peer()))
        # Not when the method returns: gRPC holds the answer until the caller has taken it.
        context.add_done_callback(lambda _: held.close())
        return held

    def _conversing(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        """Pass requests on one by one, each after the answer to the last."""
        parse, serialize = handler.request_deserializer, handler.response_serializer
        limits = call.kind.value

        async def each(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            while True:
                async with _within(limits.read_seconds, _ARRIVAL):
                    raw = await anext(requests, None)
                if raw is None:
                    return
                if len(raw) > LONG_MESSAGE:
                    raise WireError(
                        f"the request has {len(raw)} bytes; one of this call has at most "
                        f"{LONG_MESSAGE}"
                    )
                yield read_message(parse, raw)

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> None:  # noqa: ANN401
            held = self._admit(call, context)
            try:
                # Answers are written here and not yielded: a deadline would cut gRPC off while it
                # waits for a caller who reads none, and that caller would never learn of the end.
                async with _within(limits.seconds, _END):
                    async for answer in handler.stream_stream(each(requests), context):
                        await context.write(serialize(answer))
            finally:
                # Not when gRPC is done: a caller might not read the end before the connection's.
                held.close()

        return behaviour

    async def _read(
        self, requests: AsyncIterator[bytes], kind: CallKind, peer: str, turn: AsyncExitStack
    ) -> bytes:
        """
        Read a request in its turn before it is parsed: a message can take 20 times its bytes.

        The turn ends here, unless the request is long or the answer may be.
        """
        seconds = kind.value.read_seconds
        if kind in self._queues:
            await turn.enter_async_context(self._queues[kind].turn(peer, seconds))
        async with _within(seconds, _ARRIVAL):
            raw = await anext(requests, None)
            if raw is None:
                raise WireError("the call holds 0 requests; it must hold 1")
            if await anext(requests, None) is not None:
                raise WireError("the call holds several requests; it must hold 1")
        if len(raw) <= LONG_MESSAGE and not kind.value.long_answers:
            await turn.aclose()
        return raw


async def _refused(_requests: object, _context: object) -> None:
    raise CallerError("no rule allows this call")


class _within:  # noqa: N801  # reads as asyncio.timeout does
    """End a slow block with DeadlineError. A class, for speed: every call passes here twice."""

    def __init__(self, seconds: float, what: str) -> None:
        self._limit = asyncio.timeout(seconds)
        self._seconds = seconds
        self._what = what

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._limit.__aexit__(kind, raised, trace)
        except TimeoutError as error:
            raise DeadlineError(f"{self._what} within {self._seconds:g} seconds") from error


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
