"""
Plant an operator's sentinels: ordinary submissions whose reports the analyzer looks for.

They are prepared and sent by the code of a device, one by one, each over a connection of its own.
The operator chooses their network address.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.crypto.signing import PublicIdentity, receipt_holds
from common.errors import BatchStateError, PeerError, PeerRefusalError, SettingsError
from common.runtime.rpc import open_channel
from common.task_digest import TaskDigest
from deploy.clients.analyzer import OperatorClient
from deploy.sentinels.journal import PlantedSentinel, SentinelFile, SentinelState
from deploy.tasks.value_parser import sample_value
from user_agent.agent import DeviceClient, Shuffler
from user_agent.contribution import Contributor
from user_agent.policy import authentic


@asynccontextmanager
async def shuffler_at(address: str, authority: bytes | None) -> AsyncIterator[Shuffler]:
    """Open a new connection to a shuffler, as a device does."""
    async with open_channel(address, "shuffler", authority) as channel:
        yield DeviceClient(channel)


@dataclass(frozen=True, kw_only=True, eq=False)
class SentinelRun:
    """Plants sentinels among the users of one task."""

    digest: TaskDigest
    analyzer: OperatorClient
    """Where they are registered."""
    connect: Callable[[], AbstractAsyncContextManager[Shuffler]]
    """Opens a new connection to the shuffler."""
    journal: Path
    """The operator's file, new or to continue: see `journal.py`."""
    rng: np.random.Generator
    """Draws values, reports and pauses."""
    tokens: Sequence[bytes] | None = None
    """One for each sentinel, the same in every run; None where the shuffler asks for none."""
    analyzer_identity: PublicIdentity | None = None
    """Required signer of the task; None to check none."""
    shuffler_identity: PublicIdentity | None = None
    """Required signer of receipts; None to check none."""
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for so many seconds."""

    async def plant(self, count: int, over: float) -> list[PlantedSentinel]:
        """
        Register sentinels, send them over some seconds, and confirm the acknowledged ones.

        Registering first keeps any from counting as a user, and confirming last any that never
        arrived from counting as missing. Another run with the same file resends the same bytes of
        those that are not acknowledged yet, and no others.

        Raises:
            SettingsError: There are fewer tokens than sentinels, or the file cannot be continued.
            ProofError: The shuffler gave another task, or one of another signer.
            BatchStateError: There is no room for so many below the task's target size.
            PeerRefusalError: There is no such task, its batch has arrived already, or earlier
                sentinels have taken the room; nothing was sent.
            PeerError: A party cannot be reached, and nothing was sent; or a receipt does not
                verify, and no more were sent.
        """
        if self.tokens is not None and len(self.tokens) < count:
            raise SettingsError(
                f"{count} sentinels need a token each; the file of tokens holds "
                f"{len(self.tokens)} different ones"
            )
        async with self.connect() as shuffler:
            signed = await shuffler.fetch_task(self.digest)
        task = authentic(signed, self.digest, self.analyzer_identity)
        room = max(0, task.target_size - task.n_min)
        if count > room:  # before a part of them is registered and takes the room of others
            raise BatchStateError(
                f"{count} sentinels were asked for; between n_min and target_size there is room "
                f"for {room}"
            )
        with SentinelFile.opened(self.journal, self.digest, count) as journal:
            contributor = Contributor(task, self.digest)
            journal.plan(
                contributor.prepare(sample_value(task, self.rng), self.rng)
                for _ in range(count - len(journal.sentinels))
            )
            sent = {SentinelState.STORED, SentinelState.ACKNOWLEDGED}
            left = [at for at, one in enumerate(journal.sentinels) if one.state not in sent]
            await self._register(journal.sentinels, acknowledged=False)
            await self._confirm(journal)
            times = np.sort(self.rng.random(len(left))) * over
            for number, pause in zip(left, np.diff(times, prepend=0.0), strict=True):
                await self.wait(float(pause))
                await self._send(journal, number)
                await self._confirm(journal)
            return journal.sentinels

    async def _send(self, journal: SentinelFile, number: int) -> None:
        envelope = journal.sentinels[number].envelope
        token = self.tokens[number] if self.tokens is not None else b""
        try:
            async with self.connect() as shuffler:
                receipt = await shuffler.submit(self.digest, envelope, token)
        except PeerRefusalError as error:
            journal.record(number, SentinelState.REFUSED, reason=str(error))
            return
        except PeerError:
            journal.record(number, SentinelState.UNKNOWN)  # it may be stored: it stays registered
            return
        pinned = self.shuffler_identity
        if pinned is not None and not receipt_holds(pinned, self.digest, envelope, receipt):
            journal.record(number, SentinelState.UNKNOWN)
            raise PeerError(
                "the shuffler's receipt is not by the identity that was given for it; no more "
                "sentinels are sent"
            )
        journal.record(number, SentinelState.STORED, receipt=receipt)

    async def _confirm(self, journal: SentinelFile) -> None:
        """Confirm all stored sentinels at the analyzer; after a failure the next call retries."""
        stored = {
            number: one
            for number, one in enumerate(journal.sentinels)
            if one.state is SentinelState.STORED
        }
        if not stored:
            return
        try:
            await self._register(stored.values(), acknowledged=True)
        except PeerRefusalError as error:
            if error.status != BatchStateError.status:
                raise
            return  # the batch was faster
        except PeerError:
            return
        for number in stored:
            journal.record(number, SentinelState.ACKNOWLEDGED)

    async def _register(self, some: Iterable[PlantedSentinel], *, acknowledged: bool) -> None:
        leaves = [one.leaves for one in some]
        await self.analyzer.register_sentinels(self.digest, leaves, acknowledged=acknowledged)
