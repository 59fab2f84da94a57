"""A simulated user's connection to the shuffler: never shared, opened again if it fails."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import grpc

from common.errors import SettingsError
from common.runtime.rpc import reply
from common.runtime.settings import is_local
from common.wire.fields import MAX_MESSAGE_BYTES

M = TypeVar("M")

SERVICE: Final = "/shuffledp.v1.Shuffler/"
_DEADLINE: Final = {"Submit": 60.0, "FetchTask": 60.0, "SubmitBulk": 330.0}
"""Seconds, longer than the shuffler itself takes at most."""
_LAST_CALLS: Final = 10.0
"""Seconds for which calls on a connection that was given up may still be answered."""
_BEFORE_LEAVING: Final = 0.02
"""Seconds between a call's beginning and its end by a user who drops out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where connections go."""

    address: str
    authority: bytes | None
    """PEM of whom to trust; None for plaintext on loopback."""

    def __post_init__(self) -> None:
        if self.authority is None and not is_local(self.address):
            raise SettingsError(f"plaintext is allowed on loopback only, not to {self.address}")

    def open(self) -> grpc.aio.Channel:
        """
        Open a channel with a connection of its own.

        gRPC would let channels that are alike share one, and would make failed calls again by
        itself, uncounted.
        """
        options: list[tuple[str, Any]] = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ]
        if self.authority is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(self.authority),
            options=[*options, ("grpc.ssl_target_name_override", "shuffler")],
        )


class Connection:
    """One connection at a time. Requests are bytes that were made before."""

    def __init__(self, to: Destination) -> None:
        self._to = to
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, method: str, request: bytes, parse: Callable[[bytes], M]) -> M:
        """
        Make a call.

        Raises:
            PeerError: No answer for good; PeerBusyError if there was no room.
            PeerRefusalError: Refused for good.
        """
        if self._channel is None:
            self._channel = self._to.open()
        made: Any = self._channel.unary_unary(SERVICE + method, response_deserializer=parse)
        answer: M = await reply(made(request, timeout=_DEADLINE[method]), "the shuffler")
        return answer

    async def begin_and_leave(self) -> bool:
        """Begin a submission, send nothing, and hang up; say whether the call had begun."""
        channel = self._channel = self._to.open()
        call: Any = channel.stream_unary(SERVICE + "Submit")()
        begun = False
        with suppress(grpc.aio.AioRpcError, asyncio.TimeoutError):
            async with asyncio.timeout(_DEADLINE["Submit"]):
                await call.wait_for_connection()
                begun = True
                await asyncio.sleep(_BEFORE_LEAVING)
        call.cancel()
        await self.close()
        return begun

    def renew(self) -> None:
        """Let the next call open another connection; calls on this one may still be answered."""
        if self._channel is None:
            return
        closing = asyncio.ensure_future(self._channel.close(_LAST_CALLS))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._channel = None

    async def close(self) -> None:
        """Hang up."""
        for closing in self._closing:
            closing.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
