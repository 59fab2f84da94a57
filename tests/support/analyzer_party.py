"""An analyzer's core on real files, which may crash, and what all parties share."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.storage.store import Store
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.harness.party_cores import InlineExecutor, InProcessAnalyzer
from shuffledp.common.crypto.key_ring import Schedule
from shuffledp.common.runtime.parts.executor import Job
from tests.support.faults import Faults, FaultyState, Life, Network, add_boundaries

J = TypeVar("J", bound=Job)
T = TypeVar("T")

SCHEDULE: Final = Schedule(lifetime=1000.0, overlap=200.0, retention=100_000.0)
"""Keys that are replaced while tasks run, so that batches are opened with expired ones."""


@dataclass
class Surroundings:
    """A folder, clock, network, faults and seeds that all parties share."""

    path: Path
    clock: ManualClock = field(default_factory=ManualClock)
    network: Network = field(default_factory=Network)
    faults: Faults = field(default_factory=Faults)
    seeds: Iterator[int] = field(default_factory=itertools.count)

    def rng(self) -> np.random.Generator:
        """Return a new generator for each start of a party."""
        return np.random.default_rng(next(self.seeds))


class FaultyExecutor(InlineExecutor):
    """An executor whose parts are boundaries."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """See Executor."""
        results = []
        for part in parts:
            self._life.cross(stage.__name__, "before")
            results += await super().run(stage, job, [part])
            self._life.cross(stage.__name__, "after")
        return results


class AnalyzerParty(InProcessAnalyzer):
    """An analyzer's core with boundaries."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.path / "analyzer")
        self._around = around
        self.life = Life("analyzer", around.faults)

    def open_files(self) -> None:
        """Open the keys and the database, with boundaries."""
        self.life = Life("analyzer", self._around.faults)
        self.clock = self._around.clock
        self.state = FaultyState.of(self.path, self.life)
        self.keys = AnalyzerKeys.load(self.state, SCHEDULE, self.clock.now())
        self.store = Store(self.path / "analyzer.sqlite")
        add_boundaries(self.store, self.life)
        self.executor = FaultyExecutor(self.life)

    async def start(self) -> None:
        """Start, or restart on the same files."""
        await super().start()
        await self.releases.resume()

    async def rotate(self) -> None:
        """Rotate the keys that are due."""
        needed = await self.registry.needed_keys(SCHEDULE.retention)
        self.keys.reports.rotate(self._around.clock.now(), needed)

    async def settle(self) -> None:
        """Wait until all releases end, or the party crashes."""
        while releasing := list(self.releases._releasing.values()):
            over = asyncio.ensure_future(self.life.over.wait())
            await asyncio.wait({over, *releasing}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if self.life.over.is_set():
                return
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        await self.stop()
