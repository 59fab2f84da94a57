"""Composition root of the issuer: creates its clock, keys, files and threads."""

from functools import partial
from pathlib import Path

from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.common.runtime.clock import Clock, SystemClock
from shuffledp.common.runtime.http_edge import serve_http
from shuffledp.common.runtime.key_store import load_identity
from shuffledp.common.runtime.service import AddServices, Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import WitnessServicer
from shuffledp.issuer.core import Issuance, signing_threads
from shuffledp.issuer.entitlements import Entitlements, PeopleList
from shuffledp.issuer.id_tokens import IdTokens
from shuffledp.issuer.issuance_store import IssuanceStore
from shuffledp.issuer.metrics import METRICS, IssuanceMetrics
from shuffledp.issuer.servicer import IssuerServicer
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.issuer.token_cap import TokenCap
from shuffledp.issuer.token_keys import TokenKeys
from shuffledp.protos.shuffledp.v1 import issuer_pb2_grpc, log_pb2_grpc


async def start(settings: IssuerSettings) -> Service:
    """
    Start an issuer, and destroy the keys that have ended.

    Raises SettingsError if a key or the source of credentials is damaged, or a key is sealed under
    another state key.
    """
    machine = SystemClock()
    state = StateDirectory.open(settings.state_directory, settings.state_key)
    async with Service.starting(settings, "issuer", METRICS, machine, state) as service:
        entitlements = _entitlements(settings, machine)
        keys, identity = TokenKeys(state), load_identity(state)
        cap = TokenCap(state, settings.tokens_per_person, settings.tokens_period_days)
        operator_token = OperatorToken(state.plain_secret("operator.token", OperatorToken.generate))
        services = list[AddServices]()
        if settings.analyzer_identity is not None:
            pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
            witness = WitnessServicer(state, pinned, "issuer", service.clock)
            services.append(partial(log_pb2_grpc.add_WitnessServicer_to_server, witness))
        signers = signing_threads(settings.signing_threads)
        service.closing.append(signers.shutdown)
        store = service.opened(IssuanceStore(state.database("issuer.sqlite")))
        issuance = Issuance(
            keys=keys,
            store=store,
            entitlements=entitlements,
            cap=cap,
            signers=signers,
            clock=service.clock,
            record=IssuanceMetrics(service.metrics, lambda: len(keys.held())).record,
        )
        await issuance.check_complete()
        await issuance.destroy_ended()
        service.background.append(issuance.run)
        servicer = IssuerServicer(issuance, settings.issuer_name, identity)
        services.append(partial(issuer_pb2_grpc.add_IssuerServicer_to_server, servicer))
        await service.serve(
            "shuffledp.v1.Issuer", *services, operator_token=operator_token, http=serve_http
        )
    return service


def _entitlements(settings: IssuerSettings, clock: Clock) -> Entitlements:
    if settings.oidc_keys is None:
        return PeopleList(Path(str(settings.people)))
    return IdTokens(
        settings.oidc_keys,
        issuer=str(settings.oidc_issuer),
        audience=str(settings.oidc_audience),
        clock=clock,
    )
