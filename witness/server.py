"""Composition root of a third party's witness."""

from functools import partial

from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.runtime.certificates import WITNESS
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import OF_SERVERS
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import WitnessServicer
from shuffledp.protos.shuffledp.v1 import log_pb2_grpc
from shuffledp.witness.settings import WitnessSettings


async def start(settings: WitnessSettings) -> Service:
    """Start a witness; raise SettingsError if its key or its last checkpoint is damaged."""
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(settings, "witness", OF_SERVERS, SystemClock(), state) as service:
        pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
        servicer = WitnessServicer(state, pinned, WITNESS, service.clock)
        add_services = partial(log_pb2_grpc.add_WitnessServicer_to_server, servicer)
        await service.serve("shuffledp.v1.Witness", add_services)
    return service
