"""Five parties on loopback, two of them shufflers, each of which can be killed."""

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.contribution import Contributor
from tests.scale.chaos import Restart
from tests.scale.cluster import kill, opened_items, supervised
from tests.scale.recording_shuffler import recorded_noise
from tests.support.chains import FLANKS, chain
from tests.support.postgres import PostgresServer
from tests.support.tasks import draft

_RECORDING: Final = "tests.scale.recording_shuffler"
_PARTIES: Final = ("analyzer", "relay", "shuffler", "issuer", "user_agent")
_DAY: Final = 86_400
_PUBLISHED: Final = itertools.count()
"""Seconds between the deadlines of tasks, so that none repeats another."""


class ChainCluster(Cluster):
    """An analyzer, two shufflers that record their noise, an issuer and a user agent."""

    _modules: ClassVar[Mapping[str, str]] = {"relay": _RECORDING, "shuffler": _RECORDING}

    def __init__(
        self, directory: Path, people: Sequence[str] = (), *, postgres: bool = False
    ) -> None:
        """`postgres`: let the first shuffler keep submissions in PostgreSQL, which is killed."""
        super().__init__(directory, people=people, two_shufflers=True)
        self._postgres = PostgresServer(settings="") if postgres else None

    async def __aenter__(self) -> Self:
        if self._postgres:
            await asyncio.to_thread(self._postgres.start)
            self._store = self._postgres.database()
        return await super().__aenter__()

    async def stop(self) -> None:
        """Stop everything, callers first."""
        await super().stop()
        if self._postgres:
            await asyncio.to_thread(self._postgres.remove)

    async def start_shuffler(self, **changes: Any) -> None:
        """Start the first shuffler."""
        await super().start_shuffler(**({"store": self._store} if self._postgres else {}) | changes)

    async def publish_chain(
        self, n_min: int, domain_size: int, relay_key: bytes = b"", **changes: Any
    ) -> SignedTask:
        """Publish a task with two shufflers that closes at n_min users, by default."""
        end = int(time.time()) + _DAY + next(_PUBLISHED)
        relay = RelayDraft(name="second.example", key=relay_key or self.relay_key, noise=FLANKS)
        fields = chain() | {"relay": relay, "domain_size": domain_size, "deadline": end}
        fields |= {"n_min": n_min, "target_size": n_min}
        if self.people:
            fields["tokens"] = await self.create_token_key(end)
        async with self.operator() as operator:
            signed, _ = await operator.publish_task(draft(self.shuffler_key, **fields | changes))
        return signed

    async def submit(self, signed: SignedTask, values: Sequence[int], seed: int = 1) -> None:
        """Let users without tokens answer in one call, in this order; a seed is of one call."""
        device = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
        rng = np.random.default_rng(seed)
        envelopes = [device.prepare(value, rng).envelope for value in values]
        request = shuffler_pb2.SubmitBulkRequest(task_digest=signed.digest(), envelopes=envelopes)
        authority = self.authority.read_bytes()
        async with open_channel(self.shuffler.address, "shuffler", authority) as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            await reply(stub.SubmitBulk(request, timeout=20), "the shuffler")

    def victims(self) -> Mapping[str, Restart]:
        """Return what can be killed: each is killed and started again."""
        found: dict[str, Restart] = {name: partial(self._restart, name) for name in _PARTIES}
        if self._postgres:
            found["postgresql"] = self._restart_postgresql
        return found

    async def _restart(self, party: str) -> None:
        child = getattr(self, party)
        await kill(child)
        await supervised(partial(getattr(self, f"start_{party}"), listen=child.address))

    async def _restart_postgresql(self) -> None:
        assert self._postgres
        await asyncio.to_thread(self._postgres.stop)
        await asyncio.to_thread(self._postgres.start)

    async def relay_in(self, stages: Sequence[str], seconds: float, since: float) -> None:
        """Wait until the relay writes blocks of one of the stages, or raise TimeoutError."""
        async with asyncio.timeout(seconds):
            while (last := self.relay_stage())[0] not in stages or last[1] < since:
                await asyncio.sleep(0.001)

    def relay_stage(self) -> tuple[str, float]:
        """Return the subfolder to which the relay wrote last, and when; empty without a batch."""
        folders = self.directory.glob("relay/blocks/*/*")
        seen = [(mtime, folder.name) for folder in folders for mtime in _changed(folder)]
        mtime, name = max(seen, default=(0.0, ""))
        return name, mtime

    def noise(self, signed: SignedTask) -> list[NDArray[np.int64]]:
        """Return the noise that each shuffler drew, by item; raise an error if one drew again."""
        parties = [self.directory / party for party in ("shuffler", "relay")]
        drawn = [recorded_noise(party, signed.digest()) for party in parties]
        assert {0, 1} >= {len(each) for each in drawn}, "another noise was drawn for a batch"
        return [each for one in drawn for each in one]

    def opened(self, signed: SignedTask, sealed: bytes) -> NDArray[np.int64]:
        """Open sealed reports as the analyzer does, and return their items."""
        return opened_items(self.analyzer.state, signed, sealed)

    def cells(self, signed: SignedTask) -> NDArray[np.int64]:
        """Return the counts of the released batch before the noise's mean is subtracted."""
        query = "SELECT cells FROM results WHERE task_digest = ?"
        with sqlite3.connect(self.analyzer.state / "analyzer.sqlite") as connection:
            [(cells,)] = connection.execute(query, (signed.digest(),)).fetchall()
        return np.frombuffer(cells, np.int64)


def _changed(folder: Path) -> Iterator[float]:
    """Yield when a folder's content changed, unless it is gone."""
    try:
        yield folder.stat().st_mtime
    except FileNotFoundError:
        return
