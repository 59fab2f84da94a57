"""Relay the analyzer's log to devices, from a copy in memory."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError, PeerRefusalError, ProofError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.shared_calls import SharedCalls
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.log import LogCopy, LogEntry, LogProof
from shuffledp.common.transparency.merkle import OLD_COPY
from shuffledp.common.wire.transparency import MAX_LEAVES

_FRESH_SECONDS: Final = 2.0
"""Seconds for which the copy is used without another call."""


GetLog = Callable[[int], Awaitable[tuple[Sequence[bytes], Sequence[SignedCheckpoint]]]]
"""Fetches a page of leaves after the first so many, and the checkpoints to serve, from the analyzer
or, at a front-end, from the coordinator."""


class LogRelay:
    """
    Proves to devices that tasks are in the log.

    The proofs are computed here, so that the analyzer learns neither the sizes of devices'
    checkpoints nor when devices ask, and may be away.
    """

    def __init__(self, get_log: GetLog, clock: Clock) -> None:
        self._get_log = get_log
        self._clock = clock
        self._fetching = SharedCalls[None, None]()
        self._due = clock.elapsed()
        self.copy = LogCopy()
        """What front-ends fetch."""

    async def prove(self, signed: SignedTask, log_size: int) -> LogProof:
        """
        Prove that a task is in the log to a device whose last checkpoint has this size.

        Raises:
            ProofError: The task is not in the log.
            PeerError, PeerRefusalError: The source does not answer, and the copy lacks the task.
        """
        entry = LogEntry.of_task(signed)
        proof = self.copy.prove(entry, log_size)
        behind = proof is None or proof.checkpoint.checkpoint.size < log_size
        if behind or self._clock.elapsed() >= self._due:
            try:
                await self.refresh()
            except (PeerError, PeerRefusalError):
                if proof is None:
                    raise
            proof = self.copy.prove(entry, log_size)
        if proof is None:
            raise ProofError(f"the task is not in the analyzer's log: {OLD_COPY}")
        return proof

    async def refresh(self) -> None:
        """Fetch what is new, once for all concurrent callers."""
        await self._fetching.share(None, self._fetch)

    async def _fetch(self) -> None:
        self._due = self._clock.elapsed() + _FRESH_SECONDS
        try:
            await self._fill(self.copy)
        except ProofError:  # the log was rolled back or forked: devices and witnesses notice too
            logs.event("log of tasks may be forked", {"error": OLD_COPY}, level="ERROR")
            copy = LogCopy()
            try:
                await self._fill(copy)
            except ProofError as error:
                raise PeerError(f"the analyzer's log is not valid: {error}") from error
            self.copy = copy

    async def _fill(self, copy: LogCopy) -> None:
        while True:
            leaves, checkpoints = await self._get_log(copy.size)
            copy.extend(leaves)
            if len(leaves) < MAX_LEAVES:
                copy.serve(checkpoints)
                return
