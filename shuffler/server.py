"""
Composition root of the shuffler: creates its randomness, clock, keys, files and channels.

A front-end gets its keys and its signing identity from the coordinator, and has no operator.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from common.crypto.hpke import DEFAULT_SUITE, SUITES
from common.crypto.hpke_pool import HpkePool
from common.crypto.key_ring import DAY, KeyState
from common.crypto.randomness import secure_generator
from common.crypto.signed_key import signed_envelope_key
from common.crypto.signing import PublicIdentity, SigningIdentity
from common.errors import SettingsError
from common.runtime.access import OperatorToken
from common.runtime.blocks import open_blocks
from common.runtime.certificates import FRONT_END
from common.runtime.clock import Clock, SystemClock
from common.runtime.engine import open_executor
from common.runtime.executor import PartMetrics
from common.runtime.jobs import OfferedJobs
from common.runtime.key_store import KeyStore, Rotation, load_identity
from common.runtime.repeat import repeat
from common.runtime.rpc import FreshChannel
from common.runtime.service import Service
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import internal_identity
from common.runtime.witness_service import WitnessServicer
from protos.shuffledp.v1 import (
    coordinator_pb2_grpc,
    jobs_pb2_grpc,
    log_pb2_grpc,
    shuffler_pb2_grpc,
)
from shuffler.active_batches import ActiveBatches, Batches
from shuffler.admission import ConnectionLimit
from shuffler.analyzer_client import AnalyzerClient
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.front_end import CoordinatorClient, FrontEndBatches
from shuffler.inclusion import InclusionProofs
from shuffler.log_relay import LogRelay
from shuffler.metrics import METRICS, BatchMetrics
from shuffler.refusals import RefusalCounts
from shuffler.servicer import CoordinatorServicer, ShufflerServicer
from shuffler.settings import ShufflerSettings
from shuffler.storage.opening import open_store
from shuffler.storage.submission_store import SubmissionStore
from shuffler.worker import run_part


async def start(settings: ShufflerSettings) -> Service:
    """Start the process of the role in the settings; raise SettingsError for a worker."""
    if settings.role == "front-end":
        return await _start_front_end(settings)
    if settings.role == "worker":
        raise SettingsError("a worker is no service: the engine of the executor starts it")
    return await _start_coordinator(settings)


async def _start_coordinator(settings: ShufflerSettings) -> Service:
    """
    Start a shuffler and resume the batches of an earlier run.

    In the role coordinator it also serves the shuffler's other processes.
    """
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(settings, "shuffler", METRICS, SystemClock(), state) as service:
        clock = service.clock
        keys = KeyStore(state, settings.schedule())
        service.metrics.watch_keys(lambda: keys.ring)
        identity = load_identity(state)
        pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
        witness = WitnessServicer(state, pinned, "shuffler", clock)
        refusals = RefusalCounts()
        metrics = BatchMetrics(service.metrics, refusals)
        store = service.opened(open_store(settings, clock, service.metrics, metrics.record_move))
        keys.rotate(clock.now())
        pool = service.opened(HpkePool(settings.opening_processes))
        channel = service.opened(FreshChannel(settings.analyzer, "analyzer", service.tls))
        analyzer = AnalyzerClient(channel)
        log = LogRelay(analyzer.get_log, clock)
        batches = ActiveBatches(
            store=store,
            state=state,
            analyzer=analyzer,
            identity=pinned,
            own_identity=identity.public_identity(),
            keys=keys,
            minimum_batch=settings.minimum_batch,
            most_dummies=settings.most_dummies,
            rng=secure_generator(),
        )
        await refusals.load(store)
        await batches.resume()
        metrics.resume(await store.states(), batches.deadlines())
        rotation = Rotation(
            keys=keys,
            clock=clock,
            needed=batches.needed_keys,
            forget=pool.forget_keys,
            publish=lambda: publish_keys(state, keys, identity),
        )
        await rotation.rotate()
        servicer = _servicer(
            settings, clock, batches, store, pool, refusals=refusals, identity=identity, log=log
        )
        inclusions = servicer.inclusions
        operator_token = OperatorToken(state.plain_secret("operator.token", OperatorToken.generate))
        jobs = OfferedJobs()
        parts = PartMetrics(service.metrics.metrics, clock)
        executor = service.opened(open_executor(settings, pool, run_part, jobs, parts))
        deliveries = Deliveries(
            batches=batches,
            executor=executor,
            inclusions=inclusions,
            metrics=metrics,
            keep_seconds=settings.schedule().retention,
        )
        await deliveries.resume()
        await asyncio.to_thread(inclusions.delete_expired, incomplete=True)
        service.closing.append(partial(refusals.save_last, store))
        service.background += [
            deliveries.run,
            partial(repeat, deliveries.end_unresumed, 60.0, "batches not erased yet"),
            rotation.run,
            inclusions.run,
            executor.keep_connected,
            partial(refusals.run, store),
            partial(refusals.follow, store),
        ]

        def add_services(server: grpc.aio.Server) -> None:
            shuffler_pb2_grpc.add_ShufflerServicer_to_server(servicer, server)
            log_pb2_grpc.add_WitnessServicer_to_server(witness, server)

        await service.serve("shuffledp.v1.Shuffler", add_services, operator_token)
        coordinator = CoordinatorServicer(batches, store, identity, log)

        def add_internal_services(server: grpc.aio.Server) -> None:
            coordinator_pb2_grpc.add_ShufflerCoordinatorServicer_to_server(coordinator, server)
            jobs_pb2_grpc.add_JobsServicer_to_server(jobs, server)

        await service.serve_internal("shuffledp.v1.ShufflerCoordinator", add_internal_services)
    return service


async def _start_front_end(settings: ShufflerSettings) -> Service:
    """
    Start a front-end, which collects submissions and answers devices.

    Raises:
        SettingsError: A setting is wrong, or the store cannot be used.
        PeerError: The coordinator does not answer.
    """
    machine = SystemClock()
    async with Service.starting(
        settings, "shuffler", METRICS, machine, certificate=FRONT_END
    ) as service:
        clock = service.clock
        own = internal_identity(Path(settings.internal_tls_directory or ""), "front-end", clock)
        service.metrics.watch_certificates(own.files, internal=True)
        channel = service.opened(FreshChannel(str(settings.coordinator), "coordinator", own))
        coordinator = CoordinatorClient(channel)
        identity = await coordinator.get_identity()
        store = service.opened(open_store(settings, clock, service.metrics))
        pool = service.opened(HpkePool(settings.opening_processes))
        batches = FrontEndBatches(coordinator, store, pool.forget_keys)
        refusals = RefusalCounts()
        log = LogRelay(coordinator.get_log, clock)
        servicer = _servicer(
            settings, clock, batches, store, pool, refusals=refusals, identity=identity, log=log
        )
        service.closing.append(partial(refusals.save_last, store))
        service.background += [batches.run, partial(refusals.run, store)]
        add_services = partial(shuffler_pb2_grpc.add_ShufflerServicer_to_server, servicer)
        await service.serve("shuffledp.v1.Shuffler", add_services)
    return service


def _servicer(
    settings: ShufflerSettings,
    clock: Clock,
    batches: Batches,
    store: SubmissionStore,
    pool: HpkePool,
    *,
    refusals: RefusalCounts,
    identity: SigningIdentity,
    log: LogRelay,
) -> ShufflerServicer:
    """Wire what collects submissions and answers devices."""
    collection = Collection(
        batches=batches,
        store=store,
        pool=pool,
        refusals=refusals,
        connections=ConnectionLimit(settings.submissions_per_connection),
    )
    inclusions = InclusionProofs(
        blocks=open_blocks(settings.blocks_url()),
        identity=PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity"),
        keep_seconds=settings.keep_inclusion_days * DAY,
        clock=clock,
    )
    return ShufflerServicer(collection, identity, inclusions, log)


_PUBLISHED: Final = ((KeyState.ACTIVE, ""), (KeyState.PENDING, ".pending"))


def publish_keys(state: StateDirectory, keys: KeyStore, identity: SigningIdentity) -> None:
    """
    Publish the active and pending envelope key of each suite, signed by the shuffler's identity.

    Outdated pending files are deleted.
    """
    current = {}
    for suite in SUITES:
        for key_state, mark in _PUBLISHED:
            name = "envelope" if suite == DEFAULT_SUITE else f"envelope-{suite}"
            key = keys.find(suite, key_state)
            if key is not None:
                signed = signed_envelope_key(identity, key, keys.end(key))
                current[f"{name}{mark}.pub"] = signed.hex()
    for name, text in current.items():
        path = state.path / name
        if not path.exists() or path.read_bytes() != text.encode("ascii"):
            state.publish(name, text)
    for name in state.names("envelope*.pending.pub"):
        if name not in current:
            (state.path / name).unlink()
