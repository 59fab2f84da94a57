"""The shuffler's core in this process: the deployed classes, without server or workers."""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from audit.harness.analyzer_core import InlineExecutor
from audit.harness.clock import ManualClock
from audit.harness.stored_keys import store_holding
from common.crypto.hpke import HpkePrivateKey
from common.crypto.hpke_pool import HpkePool
from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.errors import PeerError
from common.messages.inclusion_proof import InclusionProof
from common.runtime.blocks import FolderBlocks
from common.runtime.key_store import KeyStore
from common.runtime.metrics import ProcessMetrics
from common.runtime.parts.executor import Executor
from common.runtime.state_directory import StateDirectory
from common.task_digest import TaskDigest
from common.wire.batches import proof_from_wire, proof_to_wire
from shuffler.core import ShufflerCore
from shuffler.delivery_client import NextHop, ReceivingParty
from shuffler.metrics import METRICS
from shuffler.settings import ShufflerSettings
from shuffler.storage.sqlite_store import SqliteStore


async def _absent_log(after: int) -> NoReturn:
    raise PeerError(f"away, after {after}")


class InProcessShuffler(ShufflerCore):
    """A shuffler's core on its own files; `start` makes it, and makes it again after a crash."""

    clock: ManualClock
    store: SqliteStore

    def __init__(
        self,
        path: Path,
        *,
        analyzer: NextHop,
        pinned: PublicIdentity,
        identity: SigningIdentity,
        pool: HpkePool | None = None,
        relay: ReceivingParty | None = None,
        key: HpkePrivateKey | None = None,
        **limits: Any,  # noqa: ANN401  # settings
    ) -> None:
        """
        `pinned` is the analyzer's identity; `pool` opens bulk submissions and tokens only.

        `key` opens envelopes beside its own keys.
        """
        self.path, self.analyzer, self.pinned, self.relay = path, analyzer, pinned, relay
        self.identity, self.limits, self._keys = identity, limits, [key] if key else []
        self.pool = pool or HpkePool(1)  # starts a worker on first use
        self.clock = ManualClock()
        self.rng = np.random.default_rng(1)

    async def start(self) -> None:
        """Start, or restart after a crash."""
        state = self.open_state()
        self.process_metrics = ProcessMetrics("shuffler", METRICS, self.clock)
        super().__init__(
            settings=ShufflerSettings(
                state_directory=self.path,
                plaintext=True,
                analyzer="127.0.0.1:1",
                analyzer_identity=self.pinned.raw.hex(),
                submissions_per_connection=0,
                **self.limits,
            ),
            state=state,
            keys=self.open_keys(state),
            identity=self.identity,
            store=self.open_store(),
            blocks=FolderBlocks(self.path / "blocks"),
            pool=self.pool,
            executor=self.open_executor(),
            analyzer=self.analyzer,
            relay=self.relay,
            get_log=_absent_log,
            process_metrics=self.process_metrics,
            clock=self.clock,
            rng=self.rng,
        )
        await self.resume()

    def open_state(self) -> StateDirectory:
        """Open the state directory."""
        return StateDirectory.open(self.path)

    def open_executor(self) -> Executor:
        """Return what runs the parts."""
        return InlineExecutor()

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open the keys."""
        return store_holding(state, *self._keys, now=self.clock.now())

    def open_store(self) -> SqliteStore:
        """Open the database of submissions."""
        return SqliteStore(self.path / "spool.sqlite", self.clock)

    # --- devices' calls; see user_agent/clients.py

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task."""
        return await self.collection.fetch_task(digest)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Return a bucket's proof, as devices read it."""
        return proof_from_wire(proof_to_wire(*await self.inclusions.relay(digest, prefix)))
