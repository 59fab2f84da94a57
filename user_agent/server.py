"""Composition root of the user agent: creates its randomness, clock, files and channels."""

from dataclasses import fields
from functools import partial
from typing import Any, Final

import grpc

from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import OF_ALL
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.protos.shuffledp.v1 import user_agent_pb2_grpc
from shuffledp.user_agent.clients import RemoteIssuer, RemoteShuffler
from shuffledp.user_agent.core import Agent
from shuffledp.user_agent.credentials import CredentialFile, PersonalSecrets
from shuffledp.user_agent.device_store import DeviceStore
from shuffledp.user_agent.policy import Claim, Policy
from shuffledp.user_agent.servicer import UserAgentServicer
from shuffledp.user_agent.settings import UserAgentSettings
from shuffledp.user_agent.task_log import DeviceLog

_PERMANENT_FILE: Final = "permanent.key"
_LONGEST_STOP: Final = 30 * DAY
"""Seconds for which a device may be off before its clock needs to be confirmed."""


async def start(settings: UserAgentSettings) -> Service:
    """Start a user agent. It resends an earlier run's pending answers."""
    machine, rng = SystemClock(), secure_generator()
    log_policy = settings.log_policy()
    state = StateDirectory.open(settings.state_directory)
    async with Service.starting(
        settings, "user_agent", OF_ALL, machine, state, longest_stop=_LONGEST_STOP
    ) as service:
        store = service.opened(DeviceStore(state.database("budget.sqlite")))
        everything = Claim(
            local_epsilon=settings.total_local_epsilon_cap,
            central_epsilon=settings.total_central_epsilon_cap,
            delta=settings.total_delta_cap,
            coalition_epsilon=settings.total_coalition_epsilon_cap,
        )
        await store.check_counter(everything, rng, confirmed=state.restore_confirmed())
        if settings.relay_identity and await store.pin_relay(settings.relay_identity):
            bound = "nothing bounds what both learn with the analyzer"
            logs.event(f"tasks with two shufflers are answered: {bound}", {}, level="WARNING")
        secrets = await _permanent_secrets(state, store) if settings.lasting_responses else None
        authority = service.tls.identity.authority if service.tls else None

        def channel_to(address: str, party: str) -> grpc.aio.Channel:
            return service.opened(open_channel(address, party, authority))

        shuffler = RemoteShuffler(channel_to(settings.shuffler, "shuffler"))
        fetch = shuffler.fetch_logged_task
        plain = [each.name for each in fields(Policy) if not each.name.endswith("_identity")]
        pinned: dict[str, Any] = {name: getattr(settings, name) for name in plain}
        agent = Agent(
            shuffler=shuffler,
            store=store,
            policy=Policy(**pinned | settings.identities()),
            issuer=RemoteIssuer(channel_to(settings.issuer, "issuer")) if settings.issuer else None,
            credentials=CredentialFile(file) if (file := settings.credential_file) else None,
            log=DeviceLog(fetch, store, log_policy, machine) if log_policy else None,
            several_persons=settings.several_persons,
            clock=service.clock,
            rng=rng,
            secrets=secrets,
            check_seconds=settings.inclusion_check_seconds,
        )
        service.background += [agent.keep_resending, agent.monitor.keep_checking]
        servicer = UserAgentServicer(agent)
        add_services = partial(user_agent_pb2_grpc.add_UserAgentServicer_to_server, servicer)
        await service.serve("shuffledp.v1.UserAgent", add_services)
    return service


async def _permanent_secrets(state: StateDirectory, store: DeviceStore) -> PersonalSecrets:
    """Load or create the permanent secret; raise SettingsError if earlier answers used another."""
    secrets = PersonalSecrets(state.secret(_PERMANENT_FILE, PersonalSecrets.generate))
    if not await store.pin_fingerprint(secrets.fingerprint):
        raise SettingsError(
            f"{_PERMANENT_FILE} is not the secret of earlier answers; new noise would break their "
            "privacy guarantees: restore it from a backup of the state directory, or remove "
            "lasting_responses from the settings"
        )
    return secrets
