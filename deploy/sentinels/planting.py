"""
An operator's sentinels: ordinary submissions whose reports the analyzer looks out for.

They are prepared and sent by the code of a device, one by one, each over a connection of its own.
Their network address is the operator's to vary.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from common.crypto.receipt import receipt_holds
from common.crypto.signing import PublicIdentity
from common.errors import (
    BatchStateError,
    PeerError,
    PeerRefusalError,
    SettingsError,
)
from common.runtime.rpc import open_channel
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.sentinels.journal import PlantedSentinel, SentinelFile, SentinelState
from deploy.tasks.value_parser import sample_value
from user_agent.contribution import Contributor
from user_agent.policy import authentic
from user_agent.shuffler_client import DeviceClient, Shuffler


class AnalyzerCalls(Protocol):
    """An analyzer, for the holder of its operator's token."""

    async def register_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """Register test submissions, by their leaves; again with the same ones changes nothing."""


@asynccontextmanager
async def shuffler_at(address: str, authority: bytes | None) -> AsyncIterator[Shuffler]:
    """Open a new connection to a shuffler, as a device does."""
    async with open_channel(address, "shuffler", authority) as channel:
        yield DeviceClient(channel)


class SentinelRun:
    """Plants sentinels among the users of one task."""

    def __init__(
        self,
        *,
        digest: TaskDigest,
        analyzer: AnalyzerCalls,
        connect: Callable[[], AbstractAsyncContextManager[Shuffler]],
        journal: Path,
        rng: np.random.Generator,
        tokens: Sequence[bytes] | None = None,
        analyzer_identity: PublicIdentity | None = None,
        shuffler_identity: PublicIdentity | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """
        Prepare a run.

        Args:
            digest: Of the task.
            analyzer: Where the sentinels are registered.
            connect: Opens a new connection to the shuffler.
            journal: The operator's file, new or to continue: see `journal.py`.
            rng: Draws values, reports and pauses.
            tokens: One for each sentinel, the same in every run; None where the shuffler asks for
                none.
            analyzer_identity: Required signer of the task; None to check none.
            shuffler_identity: Required signer of receipts; None to check none.
            wait: Waits for so many seconds.
        """
        self.digest = digest
        self.sentinels: list[PlantedSentinel] = []
        self._analyzer = analyzer
        self._connect = connect
        self._journal = journal
        self._rng = rng
        self._tokens = tokens
        self._analyzer_identity = analyzer_identity
        self._shuffler_identity = shuffler_identity
        self._wait = wait

    async def plant(self, count: int, over: float) -> None:
        """
        Register sentinels, send them, and confirm those that the shuffler acknowledged.

        They are registered before any is sent, so that none is counted as a user, and confirmed
        afterwards, so that none counts as missing that never arrived. Another run with the same
        file sends the same bytes of those that are not acknowledged yet, and no others.

        Args:
            count: How many.
            over: Seconds over which the remaining ones are spread at random; 0 for no pauses.

        Raises:
            SettingsError: There are fewer tokens than sentinels, or the file cannot be continued.
            ProofError: The shuffler gave another task, or one of another signer.
            BatchStateError: There is no room for so many below the task's target size.
            PeerRefusalError: There is no such task, its batch has arrived already, or earlier
                sentinels have taken the room; nothing was sent then.
            PeerError: Shuffler or analyzer cannot be reached, and nothing was sent.
            PeerError: The shuffler's receipt does not verify; no more were sent.
        """
        if self._tokens is not None and len(self._tokens) < count:
            raise SettingsError(
                f"{count} sentinels need a token each; the file of tokens holds "
                f"{len(self._tokens)} different ones"
            )
        async with self._connect() as shuffler:
            signed = await shuffler.fetch_task(self.digest)
        task = authentic(signed, self.digest, self._analyzer_identity)
        room = max(0, task.target_size - task.n_min)
        if count > room:  # before a part of them is registered and takes the room of others
            raise BatchStateError(
                f"{count} sentinels were asked for; between n_min and target_size there is room "
                f"for {room}"
            )
        with SentinelFile.opened(self._journal, self.digest, count) as journal:
            self.sentinels = journal.sentinels
            self._plan(journal, task, count)
            await self._register(range(count), acknowledged=False)
            await self._send_all(journal, over)

    def _plan(self, journal: SentinelFile, task: Task, count: int) -> None:
        contributor = Contributor(task, self.digest)
        journal.plan(
            contributor.answer(sample_value(task, self._rng), self._rng)
            for _ in range(count - len(journal.sentinels))
        )

    async def _send_all(self, journal: SentinelFile, over: float) -> None:
        sent = {SentinelState.STORED, SentinelState.ACKNOWLEDGED}
        left = [number for number, one in enumerate(self.sentinels) if one.state not in sent]
        await self._confirm(journal)
        times = np.sort(self._rng.random(len(left))) * over
        for number, pause in zip(left, np.diff(times, prepend=0.0), strict=True):
            await self._wait(float(pause))
            await self._send(journal, number)
            await self._confirm(journal)

    async def _send(self, journal: SentinelFile, number: int) -> None:
        envelope = self.sentinels[number].envelope
        token = self._tokens[number] if self._tokens is not None else b""
        try:
            async with self._connect() as shuffler:
                receipt = await shuffler.submit(self.digest, envelope, token)
        except PeerRefusalError as error:
            journal.record(number, SentinelState.REFUSED, reason=str(error))
            return
        except PeerError:
            journal.record(number, SentinelState.UNKNOWN)  # it may be stored: it stays registered
            return
        pinned = self._shuffler_identity
        if pinned is not None and not receipt_holds(pinned, self.digest, envelope, receipt):
            journal.record(number, SentinelState.UNKNOWN)
            raise PeerError(
                "the shuffler's receipt is not by the identity that was given for it; no more "
                "sentinels are sent"
            )
        journal.record(number, SentinelState.STORED, receipt=receipt)

    async def _confirm(self, journal: SentinelFile) -> None:
        """Tell the analyzer of all stored sentinels; after a failure the next call tells it."""
        stored = [
            number for number, one in enumerate(self.sentinels) if one.state is SentinelState.STORED
        ]
        if not stored:
            return
        try:
            await self._register(stored, acknowledged=True)
        except PeerError:
            return
        except PeerRefusalError as error:
            if error.status != BatchStateError.status:
                raise
            return  # the batch was faster
        for number in stored:
            journal.record(number, SentinelState.ACKNOWLEDGED)

    async def _register(self, numbers: Sequence[int], *, acknowledged: bool) -> None:
        leaves = [self.sentinels[number].leaves for number in numbers]
        await self._analyzer.register_sentinels(self.digest, leaves, acknowledged=acknowledged)
