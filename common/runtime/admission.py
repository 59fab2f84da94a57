"""
Places for calls: bounded memory whatever clients do, and a share that no connection exceeds.

Connections are told apart by gRPC's name for the other end. It is held while a call of theirs is
under way, and written nowhere. On a Unix socket all have one name: there nobody has a share, all
places are open to whoever may open the socket's file.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from common.errors import OverloadError, ShareError, SideCallError
from common.runtime.calls import CallKind


def is_one_connection(peer: str) -> bool:
    """Say whether gRPC's name for the other end is one connection's alone."""
    return not peer.startswith("unix:")


class Places:
    """Calls under way, by kind and by connection."""

    def __init__(self) -> None:
        self._taken: Counter[CallKind] = Counter()
        self._shares: Counter[tuple[CallKind, str]] = Counter()

    @contextmanager
    def taken(self, kind: CallKind, peer: str) -> Generator[None]:
        """
        Hold a place for as long as the block runs.

        Raises:
            OverloadError: There is none at the moment; SideCallError if nobody's answer depends on
                it; ShareError if there is one, but not for this connection.
        """
        limits = kind.value
        if self._taken[kind] >= limits.places:
            error = SideCallError if limits.aside else OverloadError
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


class Line:
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
