"""ConcurrencyLimits for calls: bounded memory whatever clients do, and a share that no connection exceeds.

Connections are told apart by gRPC's name for the other end. It is held while a call of theirs is
under way, and written nowhere. On a Unix socket all have one name: there nobody has a share, all
places are open to whoever may open the socket's file.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError

from common.crypto.tokens import OperatorToken
from common.errors import (
    CallerError,
    DeadlineError,
    OverloadError,
    ShareError,
    WireError,
)
from common.runtime.access import (
    CALLS,
    LONG_MESSAGE,
    Call,
    CallKind,
    bearer_token,
    check_caller,
    names_in,
)


def is_one_connection(peer: str) -> bool:
    """Say whether gRPC's name for the other end is one connection's alone."""
    return not peer.startswith("unix:")


class ConcurrencyLimits:
    """Calls under way, by kind and by connection."""

    def __init__(self) -> None:
        self._taken: Counter[CallKind] = Counter()
        self._shares: Counter[tuple[CallKind, str]] = Counter()

    @contextmanager
    def taken(self, kind: CallKind, peer: str) -> Generator[None]:
        """
        Hold a place for as long as the block runs.

        Raises:
            OverloadError: There is none at the moment; ShareError if nobody's answer depends on
                it; ShareError if there is one, but not for this connection.
        """
        limits = kind.value
        if self._taken[kind] >= limits.places:
            error = ShareError if limits.aside else OverloadError
            raise error(
                f"{limits.places} calls of this kind are under way, and no more at once: try later"
            )
        share = (kind, peer)
        if is_one_connection(peer) and self._shares[share] >= limits.share:
            raise ShareError(
                f"{limits.share} calls of this kind are under way on this connection, and no more "
                "at once: try later"
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
    """Lets a few work at a time, the others wait: first come, first served, by connection."""

    def __init__(self, places: int, share: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._share = share
        self._shares: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, peer: str, seconds: float) -> AsyncGenerator[None]:
        """
        Wait for a turn, for so many seconds at most, and hold it for as long as the block runs.

        Raises:
            OverloadError: None came; ShareError if this connection's own calls are what it was
                waiting for.
        """
        async with AsyncExitStack() as held:
            error: type[OverloadError] = OverloadError
            try:
                async with asyncio.timeout(seconds):
                    if is_one_connection(peer):
                        error = ShareError
                        await held.enter_async_context(self._own(peer))
                        error = OverloadError
                    await held.enter_async_context(self._places)
            except TimeoutError as late:
                raise error(
                    f"the call waited {seconds:g} seconds to be read, and none waits longer: try "
                    "later"
                ) from late
            yield

    @asynccontextmanager
    async def _own(self, peer: str) -> AsyncGenerator[None]:
        """Wait for one of a connection's own turns, and hold it."""
        self._present[peer] += 1
        try:
            async with self._shares.setdefault(peer, asyncio.Semaphore(self._share)):
                yield
        finally:
            self._present[peer] -= 1
            if not self._present[peer]:
                del self._present[peer], self._shares[peer]


M = TypeVar("M")
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]

_CAME: Final = "the request did not come whole"
_OVER: Final = "the call was not over"


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Lets calls in, by the table of calls. Stands behind what turns errors into statuses."""

    def __init__(self, *, certificates: bool, token: OperatorToken | None) -> None:
        """
        Make the gate of one server.

        Args:
            certificates: Everybody who connects has shown a certificate.
            token: The operator's, if the service has one.
        """
        self._certificates = certificates
        self._token = token
        self._places = ConcurrencyLimits()
        self._lines = {
            kind: Queue(kind.value.turns, kind.value.turns_share)
            for kind in CallKind
            if kind.value.turns
        }

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:  # noqa: ANN401  # gRPC's own types vary
        """
        Put the gate before a method. Beyond it stand messages, on this side their bytes.

        There is none for a stream of answers, which would hold its place for as long as the caller
        likes, but the one conversation, which is ended. Health checks are asked one at a time.
        """
        handler = await continuation(handler_call_details)
        call = CALLS.get(handler_call_details.method)
        if handler is not None and handler.response_streaming:
            if call is None or call.kind is not CallKind.REFLECTION:
                return None
            return grpc.stream_stream_rpc_method_handler(self._conversing(handler, call))
        if handler is None:
            return None
        return grpc.stream_unary_rpc_method_handler(
            self._refused() if call is None else self._gated(handler, call)
        )

    def _gated(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        parse, serialize = handler.request_deserializer, handler.response_serializer

        async def behaviour(requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401
            held = self._let_in(call, context)
            peer = context.peer()
            async with _within(call.kind.value.seconds, _OVER), AsyncExitStack() as turn:
                if handler.request_streaming:
                    answer = await handler.stream_unary(_messages(parse, requests), context)
                else:
                    raw = await self._read(requests, call.kind, peer, turn)
                    request = read_message(parse, raw)
                    del raw
                    answer = await handler.unary_unary(request, context)
                sent: bytes = serialize(answer)
                if len(sent) > LONG_MESSAGE:
                    held.push_async_callback(turn.pop_all().aclose)
            return sent

        return behaviour

    def _let_in(self, call: Call, context: Any) -> AsyncExitStack:  # noqa: ANN401
        """Check who calls, and take a place; it is given back when gRPC is done with the call."""
        names = names_in(context.auth_context()) if self._certificates else None
        check_caller(call.caller, names, bearer_token(context.invocation_metadata()), self._token)
        held = AsyncExitStack()
        held.enter_context(self._places.taken(call.kind, context.peer()))
        # Not when the method returns: gRPC holds the answer until the caller has taken it.
        context.add_done_callback(lambda _: asyncio.ensure_future(held.aclose()))
        return held

    def _conversing(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        """Pass requests on one by one, each once the answer to the last has gone."""
        parse, serialize = handler.request_deserializer, handler.response_serializer
        limits = call.kind.value

        async def each(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            while True:
                async with _within(limits.read_seconds, _CAME):
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
            held = self._let_in(call, context)
            try:
                # Answers are written here and not yielded: gRPC would be cut off where it waits for
                # a caller who takes none, and would never tell that caller of the end.
                async with _within(limits.seconds, _OVER):
                    async for answer in handler.stream_stream(each(requests), context):
                        await context.write(serialize(answer))
            finally:
                # Its end is one more thing that a caller may not take, until the connection's.
                await held.aclose()

        return behaviour

    async def _read(
        self, requests: AsyncIterator[bytes], kind: CallKind, peer: str, turn: AsyncExitStack
    ) -> bytes:
        """
        Read a request in its turn, to the end, before it is parsed: a message can take 20 times
        its bytes. The turn ends here, unless the request is long or the answer may be.
        """
        seconds = kind.value.read_seconds
        if kind in self._lines:
            await turn.enter_async_context(self._lines[kind].turn(peer, seconds))
        async with _within(seconds, _CAME):
            raw = await anext(requests, None)
            if raw is None:
                raise WireError("the call holds 0 requests; it must hold 1")
            if await anext(requests, None) is not None:
                raise WireError("the call holds several requests; it must hold 1")
        if len(raw) <= LONG_MESSAGE and not kind.value.long_answers:
            await turn.aclose()
        return raw

    def _refused(self) -> Any:  # noqa: ANN401
        async def behaviour(_requests: object, _context: object) -> None:
            raise CallerError("no rule says who may make this call")

        return behaviour


@asynccontextmanager
async def _within(seconds: float, what: str) -> AsyncIterator[None]:
    """
    End a block that takes longer.

    Raises:
        DeadlineError: It did, and `what` was not so.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DeadlineError(f"{what} within {seconds:g} seconds") from error


async def _messages(
    parse: Callable[[bytes], M], requests: AsyncIterator[bytes]
) -> AsyncIterator[M]:
    async for raw in requests:
        yield read_message(parse, raw)


def read_message(parse: Callable[[bytes], M], raw: bytes) -> M:
    """
    Read a message as it came.

    Raises:
        WireError: The bytes are none of this kind.
    """
    try:
        return parse(raw)
    except DecodeError as error:
        raise WireError("the request is not a message of this call") from error
