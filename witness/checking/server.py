"""Composition root of a checking witness."""

from functools import partial

from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.runtime.certificates import WITNESS
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import OF_SERVERS
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import CHECKING, CosignedHead
from shuffledp.protos.shuffledp.v1 import log_pb2_grpc
from shuffledp.witness.checking.servicer import CheckingServicer
from shuffledp.witness.checking.task_checks import TaskChecks
from shuffledp.witness.settings import CheckingWitnessSettings


async def start(settings: CheckingWitnessSettings) -> Service:
    """Start a checking witness; raise SettingsError if its key or checkpoint is damaged."""
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(settings, "witness", OF_SERVERS, SystemClock(), state) as service:
        pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
        head = CosignedHead(state, pinned, WITNESS, service.clock, CHECKING)
        texts = settings.earlier_identities
        earlier = [PublicIdentity.from_hex(text, "earlier_identities") for text in texts]
        servicer = CheckingServicer(head, TaskChecks([pinned, *earlier], service.clock))
        add_services = partial(log_pb2_grpc.add_CheckingWitnessServicer_to_server, servicer)
        await service.serve("shuffledp.v1.CheckingWitness", add_services)
    return service
