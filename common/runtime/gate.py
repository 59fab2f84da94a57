"""
The gate before every call: who calls, is there room, and has the request come in time.

gRPC would read a request before it calls the method. Here every method is taken to be of many
requests, so that nothing is read of one that is not let in.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
from google.protobuf.message import Message

from common.errors import CallerError, WireError
from common.operator_token import OperatorToken
from common.runtime.admission import Line, Places
from common.runtime.callers import bearer_token, check_caller, names_in
from common.runtime.calls import CALLS, LONG_MESSAGE, READING_PLACES, READING_SHARE, Call, Kind

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class GateInterceptor(grpc.aio.ServerInterceptor):
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
        self._places = Places()
        self._reading = Line(READING_PLACES, READING_SHARE)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:  # noqa: ANN401  # gRPC's own types vary
        """
        Put the gate before a method.

        There is none for a stream of answers: it would hold its place for as long as the caller
        likes. Health checks are asked one at a time.
        """
        handler = await continuation(handler_call_details)
        if handler is None or handler.response_streaming:
            return None
        call = CALLS.get(handler_call_details.method)
        return grpc.stream_unary_rpc_method_handler(
            self._refused() if call is None else self._gated(handler, call),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _gated(self, handler: Any, call: Call) -> Any:  # noqa: ANN401
        async def behaviour(requests: AsyncIterator[Message], context: Any) -> Any:  # noqa: ANN401
            names = names_in(context.auth_context()) if self._certificates else None
            check_caller(
                call.caller, names, bearer_token(context.invocation_metadata()), self._token
            )
            peer = context.peer()
            with self._places.taken(call.kind, peer):
                async with asyncio.timeout(call.kind.value.seconds):
                    if handler.request_streaming:
                        return await handler.stream_unary(requests, context)
                    async with AsyncExitStack() as held:
                        request = await self._read(requests, call.kind, peer, held)
                        return await handler.unary_unary(request, context)

        return behaviour

    async def _read(
        self, requests: AsyncIterator[Message], kind: Kind, peer: str, held: AsyncExitStack
    ) -> Message:
        """Read a request in its turn. A long one keeps its turn, in `held`, until the answer."""
        async with AsyncExitStack() as turn:
            async with asyncio.timeout(kind.value.read_seconds):
                if kind is Kind.SHORT:
                    await turn.enter_async_context(self._reading.turn(peer))
                request = await anext(requests, None)
                if request is None:
                    raise WireError("the call holds 0 requests; it must hold 1")
                if await anext(requests, None) is not None:
                    raise WireError("the call holds several requests; it must hold 1")
            if request.ByteSize() > LONG_MESSAGE:
                held.push_async_callback(turn.pop_all().aclose)
            return request

    def _refused(self) -> Any:  # noqa: ANN401
        async def behaviour(_requests: object, _context: object) -> None:
            raise CallerError("no rule says who may make this call")

        return behaviour
