"""Composition root of the issuer: creates its clock, keys, files and threads."""

from pathlib import Path

import grpc

from common.crypto.signing import PublicIdentity
from common.runtime.access import OperatorToken
from common.runtime.clock import Clock, SystemClock
from common.runtime.confirmed_clock import ConfirmedClock
from common.runtime.key_store import IDENTITY_FILE, load_identity
from common.runtime.metrics import ProcessMetrics
from common.runtime.service import Listener, Service
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import identity_for
from common.runtime.witness_service import WitnessServicer
from issuer.entitlements import Entitlements, PeopleList
from issuer.id_tokens import IdTokens
from issuer.issuance import Issuance, signing_threads
from issuer.issuance_store import IssuanceStore
from issuer.metrics import IssuanceMetrics
from issuer.servicer import IssuerServicer
from issuer.settings import IssuerSettings
from issuer.token_keys import TokenKeys
from protos.shuffledp.v1 import issuer_pb2_grpc, log_pb2_grpc


async def start(settings: IssuerSettings) -> Service:
    """
    Start an issuer, and destroy the keys that have ended.

    Raises SettingsError if a key or the source of credentials is damaged, or a key is sealed under
    another state key.
    """
    machine = SystemClock()
    process_metrics = ProcessMetrics("issuer", machine)
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    clock = ConfirmedClock(state, machine)
    tls = identity_for(settings, "issuer", clock)
    entitlements = _entitlements(settings, machine)
    keys, identity = TokenKeys(state), load_identity(state)
    operator_token = OperatorToken(state.plain_secret("operator.token", OperatorToken.generate))
    witness = None
    if settings.analyzer_identity is not None:
        pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
        witness = WitnessServicer(state, pinned, "issuer", clock)
    store = IssuanceStore(state.database("issuer.sqlite", IDENTITY_FILE))
    signers = signing_threads(settings.signing_threads)
    issuance = Issuance(
        keys=keys,
        store=store,
        entitlements=entitlements,
        signers=signers,
        clock=clock,
        record=IssuanceMetrics(process_metrics, lambda: len(keys.held())).record,
    )
    await issuance.check_complete()
    await issuance.destroy_ended()

    def add_services(server: grpc.aio.Server) -> None:
        servicer = IssuerServicer(issuance, settings.issuer_name, identity)
        issuer_pb2_grpc.add_IssuerServicer_to_server(servicer, server)
        if witness is not None:
            log_pb2_grpc.add_WitnessServicer_to_server(witness, server)

    listener = await Listener.start(
        settings,
        tls,
        "shuffledp.v1.Issuer",
        add_services,
        process_metrics,
        operator_token=operator_token,
        background=(clock.run, issuance.run),
    )
    return Service(listener=listener, closing=(store.close, signers.shutdown, clock.close))


def _entitlements(settings: IssuerSettings, clock: Clock) -> Entitlements:
    if settings.oidc_keys is None:
        return PeopleList(Path(str(settings.people)))
    return IdTokens(
        settings.oidc_keys,
        issuer=str(settings.oidc_issuer),
        audience=str(settings.oidc_audience),
        clock=clock,
    )
