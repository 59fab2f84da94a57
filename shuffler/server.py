"""
Composition root of the shuffler: creates its randomness, clock, keys, files and channels.

A front-end gets its keys and its signing identity from the coordinator, and has no operator.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.key_ring import KeyState
from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.crypto.signing import KeyUse, PublicIdentity, SigningIdentity, signed_key
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.common.runtime.blocks import open_blocks
from shuffledp.common.runtime.certificates import FRONT_END, RELAY
from shuffledp.common.runtime.clock import SystemClock, repeat
from shuffledp.common.runtime.http_edge import serve_http
from shuffledp.common.runtime.key_store import KeyStore, Rotation, load_identity
from shuffledp.common.runtime.parts.dask_engine import open_executor
from shuffledp.common.runtime.parts.executor import Executor
from shuffledp.common.runtime.rpc import FreshChannel
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import internal_tls
from shuffledp.common.runtime.witness_service import WitnessServicer
from shuffledp.protos.shuffledp.v1 import (
    coordinator_pb2_grpc,
    log_pb2_grpc,
    relay_pb2_grpc,
    shuffler_pb2_grpc,
)
from shuffledp.shuffler.core import BatchCore, FrontEndCore, ShufflerCore
from shuffledp.shuffler.delivery_client import AnalyzerClient, DeliveryClient, ReceivingParty
from shuffledp.shuffler.front_end import CoordinatorClient, FrontEndBatches
from shuffledp.shuffler.metrics import METRICS
from shuffledp.shuffler.relay.relay_core import RelayCore
from shuffledp.shuffler.relay.relay_store import RelayStore
from shuffledp.shuffler.servicer import CoordinatorServicer, RelayServicer, ShufflerServicer
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.storage.open_store import open_store
from shuffledp.shuffler.worker import run_part


async def start(
    settings: ShufflerSettings, executor_of: Callable[[Executor], Executor] = lambda opened: opened
) -> Service:
    """
    Start the process of the role in the settings, and resume the batches of an earlier run.

    Raises SettingsError for a worker.

    `executor_of` returns what runs the parts of batches, given the executor in the settings.
    """
    if settings.role == "front-end":
        return await _start_front_end(settings)
    if settings.role == "worker":
        raise SettingsError("a worker is no service: the engine of the executor starts it")
    relays = settings.role == "relay"
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(
        *(settings, "shuffler", METRICS, SystemClock(), state), certificate=RELAY if relays else ""
    ) as service:
        own = state.within(UNSAVED) if relays else state
        schedule = settings.relay_schedule() if relays else settings.schedule()
        keys, identity = KeyStore(own, schedule), load_identity(state)
        token = OperatorToken(state.plain_secret("operator.token", OperatorToken.generate))
        blocks = open_blocks(settings.blocks_url())
        pool = service.opened(HpkePool(settings.opening_processes))
        channel = service.opened(FreshChannel(settings.analyzer, "analyzer", service.tls))
        analyzer = AnalyzerClient(channel)
        common: dict[str, Any] = {
            "settings": settings,
            "state": own,
            "keys": keys,
            "identity": identity,
            "analyzer": analyzer,
            "blocks": blocks,
            "executor": executor_of(open_executor(service, settings, pool, run_part)),
            "process_metrics": service.metrics,
            "clock": service.clock,
            "rng": secure_generator(),
        }
        if relays:
            store = service.opened(RelayStore(state.database("relay.sqlite"), blocks))
            relay = RelayCore(**common, store=store)
            await _move_batches(service, relay, pool, state)
            await _serve_first(service, relay, token)
        else:
            core = ShufflerCore(
                **common,
                store=service.opened(open_store(settings, service.clock, service.metrics)),
                pool=pool,
                get_log=analyzer.get_log,
                relay=_relay_of(settings, service),
            )
            await _move_batches(service, core, pool, state)
            await _serve_devices(service, core, token)
    return service


async def _move_batches(
    service: Service, core: BatchCore, pool: HpkePool, state: StateDirectory
) -> None:
    """Resume and move batches, and rotate keys, which are published in `state`."""
    service.metrics.watch_keys(lambda: core.keys.ring)
    await core.resume()
    rotation = Rotation(
        keys=core.keys,
        clock=service.clock,
        needed=core.batches.needed_keys,
        forget=pool.forget_keys,
        publish=lambda: publish_keys(state, core.keys, core.identity, core.batches.use),
    )
    await rotation.rotate()
    service.background += [
        core.deliveries.run,
        partial(repeat, core.deliveries.end_unresumed, 60.0, "batches not erased yet"),
        rotation.run,
    ]


async def _serve_first(service: Service, core: RelayCore, token: OperatorToken) -> None:
    """Serve the first shuffler and the operator."""
    service.closing.append(core.staging.stop)
    add_services = partial(
        relay_pb2_grpc.add_RelayServicer_to_server, RelayServicer(core.staging, core)
    )
    await service.serve("shuffledp.v1.Relay", add_services, operator_token=token)
    await service.serve_internal("shuffledp.v1.Jobs")


async def _serve_devices(service: Service, core: ShufflerCore, token: OperatorToken) -> None:
    witness = WitnessServicer(core.state, core.batches.analyzer.identity, "shuffler", service.clock)
    service.closing.append(core.refusals.save_last)
    service.background += [core.inclusions.run, core.refusals.run, core.refusals.follow]
    await service.serve(
        "shuffledp.v1.Shuffler",
        partial(shuffler_pb2_grpc.add_ShufflerServicer_to_server, ShufflerServicer(core)),
        partial(log_pb2_grpc.add_WitnessServicer_to_server, witness),
        operator_token=token,
        http=serve_http,
    )
    coordinator = CoordinatorServicer(core)
    service.internal.append(
        partial(coordinator_pb2_grpc.add_ShufflerCoordinatorServicer_to_server, coordinator)
    )
    await service.serve_internal("shuffledp.v1.ShufflerCoordinator")


def _relay_of(settings: ShufflerSettings, service: Service) -> ReceivingParty | None:
    """Return the relay in the settings."""
    if settings.relay is None or settings.relay_identity is None:
        return None
    pinned = PublicIdentity.from_hex(settings.relay_identity, "relay_identity")
    channel = service.opened(FreshChannel(settings.relay, RELAY, service.tls))
    return ReceivingParty(name=RELAY, client=DeliveryClient(channel), identity=pinned)


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
        own = internal_tls(Path(settings.internal_tls_directory or ""), "front-end", clock)
        service.metrics.watch_certificates(own.files, "internal ")
        channel = service.opened(FreshChannel(str(settings.coordinator), "coordinator", own))
        coordinator = CoordinatorClient(channel)
        identity = await coordinator.get_identity()
        store = service.opened(open_store(settings, clock, service.metrics))
        pool = service.opened(HpkePool(settings.opening_processes))
        batches = FrontEndBatches(coordinator, store, pool.forget_keys)
        core = FrontEndCore(
            settings=settings,
            batches=batches,
            store=store,
            blocks=open_blocks(settings.blocks_url()),
            pool=pool,
            identity=identity,
            get_log=coordinator.get_log,
            clock=clock,
        )
        service.closing.append(core.refusals.save_last)
        service.background += [batches.run, core.refusals.run]
        servicer = ShufflerServicer(core)
        add_services = partial(shuffler_pb2_grpc.add_ShufflerServicer_to_server, servicer)
        await service.serve("shuffledp.v1.Shuffler", add_services, http=serve_http)
    return service


_PUBLISHED: Final = ((KeyState.ACTIVE, ""), (KeyState.PENDING, ".pending"))
_STEMS: Final = {KeyUse.ENVELOPES: "envelope", KeyUse.LAYERS: "relay"}
UNSAVED: Final = "unsaved"
"""Folder in a relay's state directory of the keys and seeds that no backup may contain."""


def publish_keys(
    state: StateDirectory, keys: KeyStore, identity: SigningIdentity, use: KeyUse = KeyUse.ENVELOPES
) -> None:
    """
    Publish the active and pending key of each suite for one use, signed by the party's identity.

    Outdated pending files are deleted.
    """
    current, stem = {}, _STEMS[use]
    for suite in SUITES:
        for key_state, mark in _PUBLISHED:
            name = stem if suite == DEFAULT_SUITE else f"{stem}-{suite}"
            key = keys.find(suite, key_state)
            if key is not None:
                signed = signed_key(identity, use, key, keys.end(key))
                current[f"{name}{mark}.pub"] = signed.hex()
    for name, text in current.items():
        path = state.path / name
        if not path.exists() or path.read_bytes() != text.encode("ascii"):
            state.publish(name, text)
    for name in state.names(f"{stem}*.pending.pub"):
        if name not in current:
            (state.path / name).unlink()
