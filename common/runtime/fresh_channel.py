"""A channel that is opened anew once the certificate that it shows was renewed."""

import asyncio
from collections.abc import Callable

import grpc

from common.runtime.rpc import LONG_DEADLINE
from common.runtime.tls import Renewal, Tls, TlsIdentity


class FreshChannel:
    """Gives a channel for the next call; calls on an earlier one are let finish."""

    def __init__(
        self, open_with: Callable[[TlsIdentity | None], grpc.aio.Channel], tls: Tls | None
    ) -> None:
        """
        Open a channel.

        Args:
            open_with: Opens a channel that shows an identity.
            tls: Whose; None for plaintext, which is never renewed.
        """
        self._open = open_with
        self._renewal = Renewal(tls.files) if tls else None
        self._channel = open_with(tls.identity if tls else None)
        self._closing: set[asyncio.Task[None]] = set()

    def current(self) -> grpc.aio.Channel:
        """Give the channel that shows the newest certificate."""
        renewed = self._renewal.take() if self._renewal else None
        if renewed is not None:
            closing = asyncio.ensure_future(self._channel.close(LONG_DEADLINE))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._channel = self._open(renewed)
        return self._channel

    async def close(self) -> None:
        """Close the channel, and earlier ones whatever is under way on them."""
        for closing in self._closing:
            closing.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._channel.close()
