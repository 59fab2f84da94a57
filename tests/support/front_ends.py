"""A shuffler of several processes, over PostgreSQL, with an analyzer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shuffledp.common.runtime.service import Service
from shuffledp.protos.shuffledp.v1 import shuffler_pb2_grpc
from tests.support.services import Services


class ManyServices(Services):
    """An analyzer, and a shuffler's coordinator and front-ends, in this process."""

    async def start_many(self, store: str, n_front_ends: int) -> None:
        """Start the analyzer, the coordinator, the front-ends, and a user agent."""
        self.store = store
        await self.start_analyzer()
        await self.start_coordinator()
        self.front_ends = [await self.start_front_end(n) for n in range(n_front_ends)]
        await self.start_user_agent()

    async def start_coordinator(self, listen: str = "127.0.0.1:0") -> None:
        """Start the coordinator; it keeps its internal address when it is started again."""
        await self.start_shuffler(
            role="coordinator",
            store=self.store,
            coordinator_listen=listen,
            internal_tls_directory=self.directory / "internal",
        )

    @property
    def coordinator(self) -> str:
        """The coordinator's internal address."""
        path = self.directory / "shuffler" / "coordinator_address"
        return path.read_text(encoding="ascii")

    async def start_front_end(self, number: int) -> Service:
        """Start a front-end."""
        return await self._start(
            "shuffler",
            state_directory=self.directory / f"front-end-{number}",
            analyzer=self.analyzer.address,
            analyzer_identity=self.identity,
            role="front-end",
            store=self.store,
            coordinator=self.coordinator,
            internal_tls_directory=self.directory / "internal",
        )

    @asynccontextmanager
    async def front_end_stubs(self) -> AsyncIterator["list[shuffler_pb2_grpc.ShufflerAsyncStub]"]:
        """Yield a stub for each front-end, as devices connect."""
        channels = [self.channel("shuffler", each.address) for each in self.front_ends]
        try:
            yield [shuffler_pb2_grpc.ShufflerStub(channel) for channel in channels]
        finally:
            for channel in channels:
                await channel.close()

    async def stop_many(self) -> None:
        """Stop all, callers first."""
        for service in self.front_ends:
            await service.stop()
        await self.stop()
