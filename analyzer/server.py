"""Composition root of the analyzer: creates its randomness, clock, keys, files and workers."""

from functools import partial
from typing import Final

from shuffledp.analyzer.core import AnalyzerCore
from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.metrics import METRICS, ReleaseMetrics
from shuffledp.analyzer.servicer import AnalyzerServicer
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.analyzer.storage.store import Store
from shuffledp.analyzer.witness_client import RemoteWitness
from shuffledp.analyzer.worker import run_part
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.runtime.blocks import StagedBlocks, open_blocks
from shuffledp.common.runtime.clock import SystemClock, repeat
from shuffledp.common.runtime.key_store import Rotation
from shuffledp.common.runtime.parts.dask_engine import open_executor
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.transparency.checkpoint import NoteKey
from shuffledp.common.transparency.log import EntryKind, LogEntry
from shuffledp.protos.shuffledp.v1 import analyzer_pb2_grpc

_HOUR: Final = 3600.0


async def start(settings: AnalyzerSettings) -> Service:
    """
    Start an analyzer and resume the batches that an earlier run had staged.

    Raises:
        SettingsError: A key in the state directory is damaged, or sealed under another state key.
        LedgerError: The ledger is broken; nothing can be released.
        ProofError: The stored checkpoint of the log is not of its entries.
        WireError: The stored checkpoint is damaged.
    """
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(settings, "analyzer", METRICS, SystemClock(), state) as service:
        clock, tls, keep = service.clock, service.tls, settings.schedule().retention
        database = state.database("analyzer.sqlite")
        keys = AnalyzerKeys.load(state, settings.schedule(), clock.now())
        store = service.opened(Store(database))
        service.metrics.watch_keys(lambda: keys.reports.ring)
        authority = tls.identity.authority if tls else None
        witnesses = [
            (one.checking, RemoteWitness(one.address, NoteKey.parse(one.key), authority))
            for one in settings.witnesses
        ]
        pool = service.opened(HpkePool(settings.opening_processes))
        core = AnalyzerCore(
            store=store,
            keys=keys,
            blocks=StagedBlocks(state, open_blocks(settings.blocks_url())),
            executor=open_executor(service, settings, pool, run_part),
            clock=clock,
            rng=secure_generator(),
            metrics=ReleaseMetrics(service.metrics),
            most_refused_share=settings.most_refused_share,
            witnesses=[one for checking, one in witnesses if not checking],
            checking=[one for checking, one in witnesses if checking],
        )
        releases = core.releases
        service.closing.append(releases.stop)
        await core.check()
        await core.log.resume(_key_entries(keys, settings, [one.key for _, one in witnesses]))
        needed = partial(core.registry.needed_keys, keep)
        rotation = Rotation(keys=keys.reports, clock=clock, needed=needed, forget=pool.forget_keys)
        await rotation.rotate()
        await releases.resume()

        async def drop_ended() -> None:
            await releases.drop_ended(clock.now() - keep)

        service.background += [
            rotation.run,
            partial(repeat, drop_ended, _HOUR, "batches not dropped yet", wait=True),
            releases.measure_budgets,
            core.log.run,
        ]
        servicer = AnalyzerServicer(core.staging, core)
        add_services = partial(analyzer_pb2_grpc.add_AnalyzerServicer_to_server, servicer)
        await service.serve(
            "shuffledp.v1.Analyzer", add_services, operator_token=keys.operator_token
        )
        await service.serve_internal("shuffledp.v1.Jobs")
    return service


def _key_entries(
    keys: AnalyzerKeys, settings: AnalyzerSettings, witnesses: list[NoteKey]
) -> list[LogEntry]:
    entries = [LogEntry(EntryKind.ANALYZER_KEY, keys.identity.public_identity().raw)]
    for kind, name in (
        (EntryKind.SHUFFLER_KEY, "shuffler_identity"),
        (EntryKind.ISSUER_KEY, "issuer_identity"),
    ):
        pinned = getattr(settings, name)
        if pinned is not None:
            entries.append(LogEntry(kind, PublicIdentity.from_hex(pinned, name).raw))
    return entries + [LogEntry(EntryKind.WITNESS_KEY, key.identity.raw) for key in witnesses]
