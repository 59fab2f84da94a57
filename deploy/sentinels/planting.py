"""
An operator's sentinels: ordinary submissions whose reports the analyzer looks out for.

They go the way of every submission: prepared and sent by the code that devices run, one by one,
each over a connection of its own. What stays different is the address that they come from, which is
for the operator to vary.
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
from deploy.sentinels.journal import Planted, SentinelFile, State
from deploy.tasks.sample_value import any_value
from user_agent.contribution import Contributor
from user_agent.policy import authentic
from user_agent.shuffler_client import DeviceClient, Shuffler


class Analyzer(Protocol):
    """What planting needs of an analyzer."""

    async def register_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """Register test submissions, by their leaves; again with the same ones changes nothing."""


@asynccontextmanager
async def shuffler_at(address: str, authority: bytes | None) -> AsyncIterator[Shuffler]:
    """Open a connection to a shuffler, a new one each time, as a device does."""
    async with open_channel(address, "shuffler", authority) as channel:
        yield DeviceClient(channel)


class Planting:
    """Plants sentinels among the users of one task."""

    def __init__(
        self,
        *,
        digest: TaskDigest,
        analyzer: Analyzer,
        connect: Callable[[], AbstractAsyncContextManager[Shuffler]],
        kept: Path,
        rng: np.random.Generator,
        tokens: Sequence[bytes] | None = None,
        analyzer_identity: PublicIdentity | None = None,
        shuffler_identity: PublicIdentity | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """
        Take what is needed.

        Args:
            digest: The task.
            analyzer: For whoever holds its operator's token.
            connect: Opens a connection to the shuffler, a new one each time.
            kept: The operator's file, begun or to go on with: see `sentinel_file.py`.
            rng: Draws values, reports and pauses.
            tokens: One for each sentinel, the same ones whenever this is run again; None where the
                shuffler asks for none.
            analyzer_identity: Whose signature the task must have; None to check none.
            shuffler_identity: Whose receipts are taken; None to take any.
            wait: Waits for so many seconds.
        """
        self._digest = digest
        self._analyzer = analyzer
        self._connect = connect
        self._kept = kept
        self._rng = rng
        self._tokens = tokens
        self._analyzer_identity = analyzer_identity
        self._shuffler_identity = shuffler_identity
        self._wait = wait
        self._unconfirmed: list[int] = []
        self.planted: list[Planted] = []

    async def plant(self, count: int, over: float) -> None:
        """
        Register so many sentinels, send them, and confirm those that the shuffler acknowledged.

        They are registered before any is sent, so that none can be counted as a user's, and
        confirmed afterwards, so that none is missed that never arrived. Run again with the same
        file, it sends the same bytes of those that are not acknowledged yet, and no others.

        Args:
            count: How many.
            over: Seconds over which those are spread that are left to send, at times drawn at
                random; 0 sends them one after the other.

        Raises:
            SettingsError: There are fewer tokens than sentinels, or the file is not one to go on
                with.
            ProofError: The shuffler gave another task, or one that is not by the analyzer.
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
        task = await self._fetch()
        room = max(0, task.target_size - task.n_min)
        if count > room:  # said before a part of them is registered and takes the room of others
            raise BatchStateError(
                f"{count} sentinels were asked for; between n_min and target_size there is room "
                f"for {room}"
            )
        with SentinelFile.opened(self._kept, self._digest, count) as kept:
            self.planted = kept.planted
            contributor = Contributor(task, self._digest)
            kept.plan(
                contributor.answer(any_value(task, self._rng), self._rng)
                for _ in range(count - len(kept.planted))
            )
            await self._register(range(count), acknowledged=False)
            await self._send_all(kept, over)

    async def _fetch(self) -> Task:
        """Fetch and check the task through the shuffler, as devices do."""
        async with self._connect() as shuffler:
            signed = await shuffler.fetch_task(self._digest)
        return authentic(signed, self._digest, self._analyzer_identity)

    async def _send_all(self, kept: SentinelFile, over: float) -> None:
        left = [
            number
            for number, sentinel in enumerate(kept.planted)
            if sentinel.state not in {State.STORED, State.ACKNOWLEDGED}
        ]
        self._unconfirmed = [
            number for number, sentinel in enumerate(kept.planted) if sentinel.state is State.STORED
        ]
        await self._confirm(kept)
        times = np.sort(self._rng.random(len(left))) * over
        for number, pause in zip(left, np.diff(times, prepend=0.0), strict=True):
            await self._wait(float(pause))
            await self._send(kept, number)
            await self._confirm(kept)

    async def _send(self, kept: SentinelFile, number: int) -> None:
        envelope = kept.planted[number].envelope
        token = self._tokens[number] if self._tokens is not None else b""
        try:
            async with self._connect() as shuffler:
                receipt = await shuffler.submit(self._digest, envelope, token)
        except PeerRefusalError as error:
            kept.became(number, State.REFUSED, reason=str(error))
            return
        except PeerError:
            kept.became(number, State.UNKNOWN)  # if it is there, it is taken out all the same
            return
        pinned = self._shuffler_identity
        if pinned is not None and not receipt_holds(pinned, self._digest, envelope, receipt):
            kept.became(number, State.UNKNOWN)
            raise PeerError(
                "the shuffler's receipt is not by the identity that was given for it; no more "
                "sentinels are sent"
            )
        kept.became(number, State.STORED, receipt=receipt)
        self._unconfirmed.append(number)

    async def _confirm(self, kept: SentinelFile) -> None:
        """Tell the analyzer what the shuffler has stored; what fails is told with the next one."""
        if not self._unconfirmed:
            return
        try:
            await self._register(self._unconfirmed, acknowledged=True)
        except PeerError:
            return
        except PeerRefusalError as error:
            if error.status != BatchStateError.status:
                raise
            return  # the batch was faster
        for number in self._unconfirmed:
            kept.became(number, State.ACKNOWLEDGED)
        self._unconfirmed = []

    async def _register(self, numbers: Sequence[int], *, acknowledged: bool) -> None:
        leaves = [self.planted[number].leaves for number in numbers]
        await self._analyzer.register_sentinels(self._digest, leaves, acknowledged=acknowledged)
