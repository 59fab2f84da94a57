"""Composition root of a checking witness."""

from functools import partial

from common.crypto.signing import PublicIdentity
from common.runtime.certificates import WITNESS
from common.runtime.clock import SystemClock
from common.runtime.metrics import OF_SERVERS
from common.runtime.service import Service
from common.runtime.state_directory import StateDirectory
from common.runtime.witness_service import CHECKING, CosignedHead
from protos.shuffledp.v1 import log_pb2_grpc
from witness.checking.servicer import CheckingServicer
from witness.checking.task_checks import TaskChecks
from witness.settings import WitnessSettings


async def start(settings: WitnessSettings) -> Service:
    """Start a checking witness; raise SettingsError if its key or checkpoint is damaged."""
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(settings, "witness", OF_SERVERS, SystemClock(), state) as service:
        pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
        head = CosignedHead(state, pinned, WITNESS, service.clock, CHECKING)
        servicer = CheckingServicer(pinned, head, TaskChecks(service.clock))
        add_services = partial(log_pb2_grpc.add_CheckingWitnessServicer_to_server, servicer)
        await service.serve("shuffledp.v1.CheckingWitness", add_services)
    return service
