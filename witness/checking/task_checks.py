"""Check signed tasks, each in a process of its own, in bounded time and memory."""

import asyncio
import math
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Final

from common.crypto.signing import SignedTask
from common.errors import PolicyError
from common.runtime import logs
from common.runtime.clock import Clock
from common.task_digest import TaskDigest

_SECONDS: Final = 30.0
"""Maximum time of one check; a device takes at most 1.5 s on one core."""
_REMEMBERED: Final = 4096
"""Maximum number of tasks that are not checked again."""
_PAUSE_SECONDS: Final = 60.0
"""Time until a check is repeated that took too long or failed; others wait while it runs."""
_PROGRAM: Final = (sys.executable, "-m", "witness.checking.check_process")


class TaskChecks:
    """Checks tasks, one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checking = asyncio.Lock()
        self._known: dict[TaskDigest, tuple[str, float]] = {}
        """Why a task is refused, empty if it is not, and until when it is not checked again."""

    async def check(self, signed: SignedTask) -> None:
        """
        Check a task's validity, weights and claims, as a device does; not its signature.

        Raises PolicyError, which names the task and the rule, if one is broken or the check takes
        too long.
        """
        digest = signed.digest()
        async with self._checking:
            refusal, until = self._known.get(digest, ("", -math.inf))
            if until <= self._clock.elapsed():
                refusal, seconds = await self._ask(signed.task_bytes)
                self._known[digest] = refusal, self._clock.elapsed() + seconds
                if len(self._known) > _REMEMBERED:
                    del self._known[next(iter(self._known))]
        if refusal:
            logs.event("task refused", {"task_digest": digest.hex()}, level="WARNING")
            raise PolicyError(f"the task {digest.hex()} is refused: {refusal}")

    async def _ask(self, task_bytes: bytes) -> tuple[str, float]:
        """Return why a new process refuses a task, empty if not, and for how many seconds."""
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        try:
            refusal, _ = await asyncio.wait_for(process.communicate(task_bytes), _SECONDS)
        except TimeoutError:
            refusal = b""
        finally:
            if process.returncode is None:  # also if the caller gave up
                process.kill()
        if process.returncode == 0:
            return refusal.decode(), math.inf
        rule = f"its claims cannot be checked within {_SECONDS:g} seconds and bounded memory"
        return rule, _PAUSE_SECONDS
