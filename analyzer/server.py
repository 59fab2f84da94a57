"""Composition root of the analyzer: creates its randomness, clock, keys, files and workers."""

from functools import partial
from typing import Final

from analyzer.budgets import ReleaseBudgets
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry
from analyzer.release import Releases
from analyzer.servicer import AnalyzerServicer
from analyzer.settings import AnalyzerSettings
from analyzer.staging import Staging
from analyzer.storage import ledger, task_table
from analyzer.storage.staged_blocks import StagedBlocks
from analyzer.storage.store import Store
from analyzer.task_log import TaskLog
from analyzer.witness_client import RemoteWitness
from analyzer.worker import run_part
from common.crypto.hpke_pool import HpkePool
from common.crypto.randomness import secure_generator
from common.crypto.signing import PublicIdentity
from common.errors import LedgerError, ProofError, WireError
from common.runtime.blocks import open_blocks
from common.runtime.clock import SystemClock
from common.runtime.confirmed_clock import ConfirmedClock
from common.runtime.engine import open_executor
from common.runtime.executor import PartMetrics
from common.runtime.jobs import OfferedJobs
from common.runtime.key_store import IDENTITY_FILE, Rotation
from common.runtime.metrics import ProcessMetrics
from common.runtime.repeat import repeat
from common.runtime.service import Listener, Service
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import identity_for
from common.transparency.checkpoint import NoteKey
from common.transparency.log_entry import EntryKind, LogEntry
from protos.shuffledp.v1 import analyzer_pb2_grpc, jobs_pb2_grpc

_HOUR: Final = 3600.0


async def start(settings: AnalyzerSettings) -> Service:
    """
    Start an analyzer and resume the batches that an earlier run had staged.

    Raises:
        SettingsError: A key in the state directory is damaged, or sealed under another state key.
        LedgerError: The ledger is broken; nothing can be released.
        ProofError: The stored checkpoint of the log is not of its entries.
    """
    machine = SystemClock()
    process_metrics = ProcessMetrics("analyzer", machine)
    metrics = ReleaseMetrics(process_metrics)
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    clock = ConfirmedClock(state, machine)
    tls = identity_for(settings, "analyzer", clock)
    database = state.database("analyzer.sqlite", IDENTITY_FILE)
    keys = AnalyzerKeys.load(state, settings.schedule(), clock.now())
    process_metrics.watch_keys(lambda: keys.reports.ring)
    witnesses = [(one.address, NoteKey.parse(one.key)) for one in settings.witnesses]
    authority = tls.identity.authority if tls else None
    store = Store(database)
    log = TaskLog(
        store=store,
        identity=keys.identity,
        witnesses=[RemoteWitness(address, key, authority) for address, key in witnesses],
        clock=clock,
    )
    try:
        head = await store.run(ledger.check)
        await log.resume(_key_entries(keys, settings, [key for _, key in witnesses]))
    except (LedgerError, ProofError, WireError):
        store.close()
        raise
    metrics.watch_witnesses(log.cosigned)
    pool = HpkePool(settings.opening_processes)
    budgets = ReleaseBudgets(store)
    registry = Registry(
        store=store,
        budgets=budgets,
        keys=keys,
        clock=clock,
        rng=secure_generator(),
        metrics=metrics,
    )
    jobs = OfferedJobs()
    parts = PartMetrics(process_metrics.metrics, machine)
    executor = open_executor(settings, pool, run_part, jobs, parts)
    blocks = StagedBlocks(state, open_blocks(settings.blocks_url()))
    metrics.resume(await store.batch_states(), await store.run(task_table.deadlines), head.entry)
    staging = Staging(
        store=store,
        registry=registry,
        budgets=budgets,
        identity=keys.identity,
        rng=secure_generator(),
        metrics=metrics,
        blocks=blocks,
        executor=executor,
    )
    releases = Releases(
        store=store,
        registry=registry,
        budgets=budgets,
        keys=keys,
        executor=executor,
        most_refused_share=settings.most_refused_share,
        staging=staging,
        metrics=metrics,
        clock=clock,
    )

    async def drop_ended() -> None:
        await releases.drop_ended(clock.now() - settings.schedule().retention)

    needed = partial(registry.needed_keys, settings.schedule().retention)
    rotation = Rotation(keys=keys.reports, clock=clock, needed=needed, forget=pool.forget_keys)
    await rotation.rotate()
    await releases.resume()

    servicer = AnalyzerServicer(registry, staging, releases, log)
    listener = await Listener.start(
        settings,
        tls,
        "shuffledp.v1.Analyzer",
        partial(analyzer_pb2_grpc.add_AnalyzerServicer_to_server, servicer),
        process_metrics,
        operator_token=keys.operator_token,
        background=(
            clock.run,
            rotation.run,
            partial(repeat, drop_ended, _HOUR, "batches not dropped yet", wait=True),
            releases.measure_budgets,
            executor.keep_connected,
            log.run,
        ),
    )
    serve_jobs = partial(jobs_pb2_grpc.add_JobsServicer_to_server, jobs)
    internal = await Listener.start_internal(
        settings, clock, "shuffledp.v1.Jobs", serve_jobs, process_metrics
    )
    return Service(
        listener=listener,
        internal=internal,
        closing=(releases.stop, executor.close, pool.close, store.close, clock.close),
    )


def _key_entries(
    keys: AnalyzerKeys, settings: AnalyzerSettings, witnesses: list[NoteKey]
) -> list[LogEntry]:
    entries = [LogEntry.of_key(EntryKind.ANALYZER_KEY, keys.identity.public_identity())]
    for kind, name in (
        (EntryKind.SHUFFLER_KEY, "shuffler_identity"),
        (EntryKind.ISSUER_KEY, "issuer_identity"),
    ):
        pinned = getattr(settings, name)
        if pinned is not None:
            entries.append(LogEntry.of_key(kind, PublicIdentity.from_hex(pinned, name)))
    return entries + [LogEntry.of_key(EntryKind.WITNESS_KEY, key.identity) for key in witnesses]
