"""Rotates a party's keys at start, and while it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

from common.hpke import KeyId
from common.runtime import logs
from common.runtime.clock import Clock
from common.runtime.key_store import KeyStore

TICK: Final = 600.0
"""Seconds between looks at the clock: keys live for days."""


class KeyMemory(Protocol):
    """Something that may still hold a destroyed key: an HpkePool."""

    def forget_keys(self) -> None:
        """Drop every key that it holds."""


class Rotation:
    """Does what is due with a party's keys."""

    def __init__(
        self,
        *,
        keys: KeyStore,
        clock: Clock,
        needed: Callable[[], Awaitable[Collection[KeyId] | None]],
        memory: KeyMemory,
        publish: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Rotate nothing yet.

        Args:
            keys: The keys.
            clock: Tells when something is due.
            needed: Gives the keys of unfinished tasks, which are not destroyed; None if they are
                not known, and none is destroyed.
            memory: Forgets what is destroyed.
            publish: Writes the public keys that others read, each time.
        """
        self._keys = keys
        self._clock = clock
        self._needed = needed
        self._memory = memory
        self._publish = publish

    async def do_what_is_due(self) -> None:
        """Look at the clock once."""
        now = self._clock.now()
        needed = await self._needed() if self._keys.may_destroy(now) else None
        if self._keys.rotate(now, needed):
            self._memory.forget_keys()
        self._publish()

    async def run(self, tick: float = TICK) -> None:
        """Look at the clock for as long as the service runs."""
        while True:
            await asyncio.sleep(tick)
            try:
                await self.do_what_is_due()
            except Exception as error:  # noqa: BLE001  # whatever it is, it is tried again
                logs.event("keys not rotated yet", {"error": type(error).__name__}, level="ERROR")
