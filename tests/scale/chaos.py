"""Kills processes at random, and starts them again."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

_LONGEST_PAUSE: Final = 1.0

Restart = Callable[[], Awaitable[None]]
"""Kills one process, and starts it again."""


class Chaos:
    """Kills what runs, one after the other, several of them down at a time."""

    def __init__(self, victims: Mapping[str, Restart], seed: int) -> None:
        self._victims = victims
        self._choices = random.Random(seed)  # noqa: S311  # when to kill is no secret
        self._down: dict[str, asyncio.Task[None]] = {}
        self._restarts: list[asyncio.Task[None]] = []
        self.kills: Counter[str] = Counter()
        self.started = time.monotonic()

    async def kill(self, kills: int, at_once: int = 2) -> None:
        """Kill `kills` processes; wait until all run again."""
        for _ in range(kills):
            await asyncio.sleep(self._choices.uniform(0.0, _LONGEST_PAUSE))
            while len(self._down) >= at_once:
                await asyncio.wait(self._down.values(), return_when=asyncio.FIRST_COMPLETED)
            victim = self._choices.choice(sorted(self._victims.keys() - self._down.keys()))
            self.kills[victim] += 1
            self._down[victim] = asyncio.create_task(self._restart(victim))
            self._restarts.append(self._down[victim])
        await asyncio.gather(*self._restarts)

    async def _restart(self, victim: str) -> None:
        try:
            await self._victims[victim]()
        finally:
            del self._down[victim]
