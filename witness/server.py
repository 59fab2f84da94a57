"""Composition root of a third party's witness."""

from functools import partial

from common.crypto.signing import PublicIdentity
from common.runtime.certificates import WITNESS
from common.runtime.clock import SystemClock
from common.runtime.confirmed_clock import ConfirmedClock
from common.runtime.metrics import ProcessMetrics
from common.runtime.service import Listener, Service
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import identity_for
from common.runtime.witness_service import WitnessServicer
from protos.shuffledp.v1 import log_pb2_grpc
from witness.settings import WitnessSettings


async def start(settings: WitnessSettings) -> Service:
    """Start a witness; raise SettingsError if its key or its last checkpoint is damaged."""
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    machine = SystemClock()
    clock = ConfirmedClock(state, machine)
    pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
    servicer = WitnessServicer(state, pinned, WITNESS, clock)
    listener = await Listener.start(
        settings,
        identity_for(settings, WITNESS, clock),
        "shuffledp.v1.Witness",
        partial(log_pb2_grpc.add_WitnessServicer_to_server, servicer),
        ProcessMetrics("witness", machine),
        background=(clock.run,),
    )
    return Service(listener=listener, closing=(clock.close,))
