"""The cores of both shufflers in this process: the deployed classes, without server or workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from audit.harness.analyzer_core import SCHEDULE, InlineExecutor, Receiving
from audit.harness.clock import ManualClock
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
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import TaskDigest
from common.wire.batches import proof_from_wire, proof_to_wire
from shuffler.core import BatchCore, ShufflerCore
from shuffler.delivery_client import NextHop, ReceivingParty
from shuffler.metrics import METRICS
from shuffler.relay.relay_core import RelayCore
from shuffler.relay.relay_store import RelayStore
from shuffler.settings import ShufflerSettings
from shuffler.storage.sqlite_store import SqliteStore


async def _absent_log(after: int) -> NoReturn:
    raise PeerError(f"away, after {after}")


@contextmanager
def permuting() -> Iterator[None]:
    """Let the shufflers of this process draw no dummies, so that they only permute."""
    spec: Any = ShufflerSpec
    deployed = spec.draw_item_dummies
    spec.draw_item_dummies = lambda _spec, n_items, _rng: np.zeros(n_items, dtype=np.int64)
    try:
        yield
    finally:
        spec.draw_item_dummies = deployed


def store_holding(state: StateDirectory, *keys: HpkePrivateKey, now: float = 0.0) -> KeyStore:
    """Return a key store that holds these keys beside its own."""
    for key in keys:
        state.secret(f"hpke-{key.public_key().key_id.hex()}.key", key.private_bytes)
    store = KeyStore(state, SCHEDULE)
    store.rotate(now)
    return store


class InProcessCore(BatchCore):
    """A shuffler's core on its own files; `start` makes it, and makes it again after a crash."""

    clock: ManualClock
    open_store: Callable[[], Any]

    def __init__(
        self,
        path: Path,
        *,
        analyzer: NextHop,
        pinned: PublicIdentity,
        identity: SigningIdentity,
        relay: ReceivingParty | None = None,
        key: HpkePrivateKey | None = None,
        executor: Executor | None = None,
        **limits: Any,  # noqa: ANN401  # settings
    ) -> None:
        """`pinned` is the analyzer's identity; `key` opens what arrives, beside its own keys."""
        self.path, self.analyzer, self.pinned, self.relay = path, analyzer, pinned, relay
        self.identity, self.limits, self._keys = identity, limits, [key] if key else []
        self.clock, self.rng = ManualClock(), np.random.default_rng(1)
        self._executor, self.ports = executor or InlineExecutor(), dict[str, Any]()
        """Fields of the kind of core."""

    async def start(self) -> None:
        """Start, or restart after a crash."""
        self.path.mkdir(parents=True, exist_ok=True)
        state, self.blocks = self.open_state(), FolderBlocks(self.path / "blocks")
        super().__init__(
            settings=ShufflerSettings(
                state_directory=self.path,
                plaintext=True,
                analyzer="127.0.0.1:1",
                analyzer_identity=self.pinned.raw.hex(),
                **self.limits,
            ),
            state=state,
            keys=self.open_keys(state),
            identity=self.identity,
            store=self.open_store(),
            blocks=self.blocks,
            executor=self.open_executor(),
            analyzer=self.analyzer,
            relay=self.relay,
            process_metrics=ProcessMetrics("shuffler", METRICS, self.clock),
            clock=self.clock,
            rng=self.rng,
            **self.ports,
        )
        await self.resume()

    async def restart(self) -> None:
        """Restart on the same files, as after a crash."""
        self.store.close()
        await self.start()

    def open_state(self) -> StateDirectory:
        """Open the directory of keys and seeds."""
        return StateDirectory.open(self.path)

    def open_executor(self) -> Executor:
        """Return what runs the parts."""
        return self._executor

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open the keys."""
        return store_holding(state, *self._keys, now=self.clock.now())


class InProcessShuffler(InProcessCore, ShufflerCore):
    """The core of a first or only shuffler."""

    clock: ManualClock
    store: SqliteStore

    def __init__(self, path: Path, *, pool: HpkePool | None = None, **ports: Any) -> None:  # noqa: ANN401
        """`pool` opens bulk submissions and tokens only; it starts a worker on first use."""
        super().__init__(path, submissions_per_connection=0, **ports)
        self.ports = {"pool": pool or HpkePool(1), "get_log": _absent_log}

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


class InProcessRelay(InProcessCore, RelayCore, Receiving):
    """The core of a second shuffler."""

    def __init__(self, path: Path, **ports: Any) -> None:  # noqa: ANN401
        super().__init__(path, role="relay", **ports)

    def open_state(self) -> StateDirectory:
        """Open the directory of keys and seeds, which is in no backup."""
        return StateDirectory.open(self.path / "unsaved")

    def open_store(self) -> RelayStore:
        """Open the database."""
        return RelayStore(self.path / "relay.sqlite", self.blocks)
