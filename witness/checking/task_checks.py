"""Check signed tasks, each in a process of its own, in bounded time and memory."""

import asyncio
import math
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

from shuffledp.common.crypto.signing import PublicIdentity, SignedTask
from shuffledp.common.errors import PolicyError, ProofError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.task_digest import TaskDigest

_SECONDS: Final = 30.0
"""Maximum time of one check; a device takes at most 1.5 s on one core."""
_REMEMBERED: Final = 4096
"""Maximum number of tasks that are not checked again."""
_PAUSE_SECONDS: Final = 60.0
"""Time until a check is repeated that took too long or failed; others wait while it runs."""
OUT_OF_MEMORY: Final = 77
"""Exit status of a check that ran out of memory."""
Reason = Literal["signature", "rule", "time", "memory", "failure"]
"""Why a task is refused; `failure` is of the check itself."""
_PROGRAM: Final = (sys.executable, "-m", "shuffledp.witness.checking.check_process")


class TaskChecks:
    """Checks the tasks of one analyzer, one at a time."""

    def __init__(self, signers: Sequence[PublicIdentity], clock: Clock) -> None:
        """Check tasks that one of the analyzer's identities, earlier ones too, must have signed."""
        self._signers = signers
        self._clock = clock
        self._checking = asyncio.Lock()
        self._known: dict[TaskDigest, tuple[Reason, str, float]] = {}
        """Why a task is refused, empty if it is not, and until when it is not checked again."""

    async def check(self, signed: SignedTask) -> None:
        """
        Check a task's signature, validity, weights and claims, as a device does.

        Raises PolicyError, which names the task and the rule, if one is broken or the check takes
        too long.
        """
        digest = signed.digest()
        if not self._is_signed(signed):
            rule = "it is not signed by a pinned identity of the analyzer"
            raise _refused(digest, "signature", rule)
        async with self._checking:
            reason, refusal, until = self._known.get(digest, ("rule", "", -math.inf))
            if until <= self._clock.elapsed():
                reason, refusal = await self._ask(signed.task_bytes)
                seconds = math.inf if reason == "rule" else _PAUSE_SECONDS
                self._known[digest] = reason, refusal, self._clock.elapsed() + seconds
                if len(self._known) > _REMEMBERED:
                    del self._known[next(iter(self._known))]
        if refusal:
            raise _refused(digest, reason, refusal)

    def _is_signed(self, signed: SignedTask) -> bool:
        for signer in self._signers:
            with suppress(ProofError):
                signer.verify(signed)
                return True
        return False

    async def _ask(self, task_bytes: bytes) -> tuple[Reason, str]:
        """Return why a new process refuses a task; the text is empty if it does not."""
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        try:
            refusal, _ = await asyncio.wait_for(process.communicate(task_bytes), _SECONDS)
        except TimeoutError:
            return "time", f"its claims cannot be checked within {_SECONDS:g} seconds"
        finally:
            if process.returncode is None:  # also if the caller gave up
                process.kill()
        if process.returncode == 0:
            return "rule", refusal.decode()
        if process.returncode == OUT_OF_MEMORY:
            return "memory", "its claims cannot be checked within bounded memory"
        return "failure", f"this witness's check failed with exit status {process.returncode}"


def _refused(digest: TaskDigest, reason: Reason, rule: str) -> PolicyError:
    fields: dict[logs.Field, str] = {"task_digest": digest.hex(), "reason": reason}
    logs.event("task refused", fields, level="WARNING")
    return PolicyError(f"the task {digest.hex()} is refused: {rule}")
