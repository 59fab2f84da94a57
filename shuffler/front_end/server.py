"""Composition root of a front-end of the shuffler."""

from functools import partial
from pathlib import Path

import grpc

from common.crypto.hpke_pool import HpkePool
from common.crypto.key_ring import DAY
from common.crypto.signing import PublicIdentity
from common.runtime.blocks import open_blocks
from common.runtime.certificates import FRONT_END
from common.runtime.clock import SystemClock
from common.runtime.metrics import ProcessMetrics
from common.runtime.rpc import FreshChannel
from common.runtime.service import Listener, Service
from common.runtime.tls import identity_for, internal_identity
from protos.shuffledp.v1 import shuffler_pb2_grpc
from shuffler.admission import ConnectionLimit
from shuffler.collection import Collection
from shuffler.front_end.batches import FrontEndBatches
from shuffler.front_end.coordinator_client import CoordinatorClient
from shuffler.inclusion import InclusionProofs
from shuffler.log_relay import LogRelay
from shuffler.refusals import RefusalCounts
from shuffler.servicer import ShufflerServicer
from shuffler.settings import ShufflerSettings
from shuffler.storage.opening import open_store


async def start_front_end(settings: ShufflerSettings) -> Service:
    """
    Start a front-end, which collects submissions and answers devices.

    It gets its keys and its signing identity from the coordinator, and has no operator.

    Raises:
        SettingsError: A setting is wrong, or the store cannot be used.
        PeerError: The coordinator does not answer.
    """
    clock = SystemClock()
    process_metrics = ProcessMetrics("shuffler", clock)
    tls = identity_for(settings, FRONT_END, clock)
    own = internal_identity(Path(settings.internal_tls_directory or ""), "front-end", clock)
    process_metrics.watch_certificates(own.files, internal=True)
    channel = FreshChannel(str(settings.coordinator), "coordinator", own)
    coordinator = CoordinatorClient(channel)
    try:
        identity = await coordinator.get_identity()
        store = open_store(settings, clock, process_metrics)
    except BaseException:
        await channel.close()
        raise
    pool = HpkePool(settings.opening_processes)
    batches = FrontEndBatches(coordinator, store, pool.forget_keys)
    refusals = RefusalCounts()
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

    log = LogRelay(coordinator.get_log, clock)

    def add_services(server: grpc.aio.Server) -> None:
        servicer = ShufflerServicer(collection, identity, inclusions, log)
        shuffler_pb2_grpc.add_ShufflerServicer_to_server(servicer, server)

    listener = await Listener.start(
        settings,
        tls,
        "shuffledp.v1.Shuffler",
        add_services,
        process_metrics,
        background=(batches.run, partial(refusals.run, store)),
    )
    save_last = partial(refusals.save_last, store)
    return Service(listener=listener, closing=(save_last, channel.close, pool.close, store.close))
