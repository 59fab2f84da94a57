"""Composition root of the analyzer: randomness, clock, keys, files and workers are made here."""

import grpc

from analyzer.keys import AnalyzerKeys
from analyzer.registry import Registry
from analyzer.release import Releases
from analyzer.sentinels import Sentinels
from analyzer.servicer import AnalyzerServicer
from analyzer.settings import AnalyzerSettings
from analyzer.spending import Spending
from analyzer.store import Store
from common.errors import LedgerError
from common.hpke_pool import HpkePool
from common.randomness import secure_generator
from common.runtime.clock import SystemClock
from common.runtime.process import Listener
from common.runtime.state import StateDirectory
from common.runtime.tls import identity_for
from protos.shuffledp.v1 import analyzer_pb2_grpc


class AnalyzerService:
    """A running analyzer."""

    def __init__(
        self, *, listener: Listener, releases: Releases, store: Store, pool: HpkePool
    ) -> None:
        self._listener = listener
        self._releases = releases
        self._store = store
        self._pool = pool
        self.address = listener.address

    async def stop(self) -> None:
        """Finish calls in flight and close every file."""
        await self._listener.stop()
        await self._releases.stop()
        self._pool.close()
        self._store.close()


async def start(settings: AnalyzerSettings) -> AnalyzerService:
    """
    Start an analyzer, and go on with batches that an earlier run had staged.

    Raises:
        LedgerError: The ledger is broken: nothing is released on it.
    """
    clock = SystemClock()
    state = StateDirectory.open(settings.state_directory)
    tls = identity_for(settings, "analyzer", clock)
    keys = AnalyzerKeys.load(state)
    store = Store(state.path / "analyzer.sqlite")
    try:
        await store.check_ledger()
    except LedgerError:
        store.close()
        raise
    pool = HpkePool(keys.reports, settings.opening_processes)
    spending = Spending(store)
    registry = Registry(
        store=store, spending=spending, keys=keys, clock=clock, rng=secure_generator()
    )
    releases = Releases(
        store=store,
        registry=registry,
        spending=spending,
        pool=pool,
        identity=keys.identity,
        most_refused_share=settings.most_refused_share,
    )
    sentinels = Sentinels(store, registry)
    await releases.resume()

    def add_services(server: grpc.aio.Server) -> None:
        servicer = AnalyzerServicer(registry, releases, sentinels, keys.operator_token)
        analyzer_pb2_grpc.add_AnalyzerServicer_to_server(servicer, server)

    listener = await Listener.start(settings, tls, "shuffledp.v1.Analyzer", add_services)
    return AnalyzerService(listener=listener, releases=releases, store=store, pool=pool)
