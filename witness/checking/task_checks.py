"""Check signed tasks, each in a process of its own, in bounded time and memory."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Final

from common.crypto.signing import PublicIdentity, SignedTask
from common.errors import PolicyError, ProofError
from common.runtime import logs
from common.task_digest import TaskDigest

_SECONDS: Final = 30.0
"""Maximum time of one check; a device takes at most 1.5 s on one core."""
_REMEMBERED: Final = 4096
"""Maximum number of tasks that are not checked again."""
_PROGRAM: Final = (sys.executable, "-m", "witness.checking.check_process")


class TaskChecks:
    """Checks the tasks of one analyzer, one at a time."""

    def __init__(self, analyzer: PublicIdentity) -> None:
        """Check tasks that this identity must have signed."""
        self._analyzer = analyzer
        self._checking = asyncio.Lock()
        self._true: dict[TaskDigest, None] = {}

    async def check(self, signed: SignedTask) -> None:
        """
        Check a task's signature, validity, weights and claims, as a device does.

        Raises PolicyError, which names the task and the rule, if one is broken or the check takes
        too long.
        """
        digest = signed.digest()
        try:
            self._analyzer.verify(signed)
            async with self._checking:
                refusal = "" if digest in self._true else await self._ask(signed.task_bytes)
        except ProofError as error:
            refusal = str(error)
        if refusal:
            logs.event("task refused", {"task_digest": digest.hex()}, level="WARNING")
            raise PolicyError(f"the task {digest.hex()} is refused: {refusal}")
        self._true[digest] = None
        if len(self._true) > _REMEMBERED:
            del self._true[next(iter(self._true))]

    async def _ask(self, task_bytes: bytes) -> str:
        """Return why a new process refuses a task, empty if it does not."""
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
            return refusal.decode()
        return f"its claims cannot be checked within {_SECONDS:g} seconds and bounded memory"
