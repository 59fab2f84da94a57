"""The three real services in this process, on loopback, with taps where their messages come in."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self, TypeVar
from unittest import mock

import analyzer.server
import shuffler.server
import user_agent.agent
import user_agent.server
from analyzer.settings import AnalyzerSettings
from common.crypto.hpke import HpkePrivateKey
from common.crypto.suites import SUITES
from common.runtime.clock import SystemClock
from common.runtime.key_store import KeyStore
from common.runtime.service import Service
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import development_files
from common.task.task import Task
from deploy.audit.log_lines import WHO
from deploy.audit.services.disk import leave_expired
from deploy.audit.services.sources import Sources
from deploy.audit.services.tape import Party, Tape
from deploy.audit.services.traced import TracedAnswer, TracedContributor
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient
from shuffler.settings import ShufflerSettings
from user_agent.settings import UserAgentSettings

S = TypeVar("S", bound=Service)

_SERVERS: Final[dict[Party, tuple[ModuleType, str]]] = {
    "analyzer": (analyzer.server, "AnalyzerServicer"),
    "shuffler": (shuffler.server, "ShufflerServicer"),
    "user_agent": (user_agent.server, "UserAgentServicer"),
}
_LOUDEST: Final = "DEBUG"
_ANY_PORT: Final = "127.0.0.1:0"
_CLAIMED: Final = 1e6
"""A cap on central ε that no task here reaches: tiny batches claim little more than local ε."""
_SURE: Final = 0.9
"""A cap on δ, likewise: where little is claimed for so few users, it is at a large δ."""
_NO_LIMIT: Final = float("inf")
SUBMISSIONS_EACH: Final = 20_000
"""That one connection may make: more than the users of a play share one for."""
_SELDOM: Final = 30.0
"""Seconds between questions of the device whether an answer was counted."""


class Trio:
    """
    Analyzer, shuffler and user agent, started by their own composition roots.

    Args:
        directory: Where their files go, each in a folder of its own.
        tape: Records what their servicers are given.
        sources: Examines and replaces the generators they make.
        told: Is told of every answer that the user agent makes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tape: Tape,
        sources: Sources,
        told: Callable[[TracedAnswer], None],
    ) -> None:
        self.directory = directory
        self._tape = tape
        self._sources = sources
        self._told = told
        self._started: list[Service] = []
        self._patches = ExitStack()

    async def __aenter__(self) -> Self:
        tls = self.directory / "tls"
        traced = partial(TracedContributor, told=self._told)
        self._patches.enter_context(mock.patch.object(user_agent.agent, "Contributor", traced))
        try:
            analyzer_settings = AnalyzerSettings(
                state_directory=self.state("analyzer"),
                tls_directory=tls,
                opening_processes=1,
                log_level=_LOUDEST,
                metrics_listen=_ANY_PORT,
            )
            await self._start("analyzer", lambda: analyzer.server.start(analyzer_settings))
            leave_expired(self.state("shuffler"))
            shuffler_settings = ShufflerSettings(
                state_directory=self.state("shuffler"),
                tls_directory=tls,
                analyzer=self.address("analyzer"),
                analyzer_identity=self._text("analyzer", "identity.pub"),
                opening_processes=1,
                submissions_per_connection=SUBMISSIONS_EACH,
                log_level=_LOUDEST,
                metrics_listen=_ANY_PORT,
            )
            await self._start("shuffler", lambda: shuffler.server.start(shuffler_settings))
            agent_settings = UserAgentSettings(
                state_directory=self.state("user_agent"),
                listen=f"unix:{self.directory / 'agent.sock'}",
                tls_directory=tls,
                shuffler=self.address("shuffler"),
                analyzer_identity=self._text("analyzer", "identity.pub"),
                shuffler_identity=self._text("shuffler", "identity.pub"),
                inclusion_check_seconds=_SELDOM,
                local_epsilon_cap=_NO_LIMIT,
                total_local_epsilon_cap=_NO_LIMIT,
                total_central_epsilon_cap=_CLAIMED,
                total_delta_cap=_SURE,
                several_persons=True,
                log_level=_LOUDEST,
                metrics_listen=_ANY_PORT,
            )
            await self._start("user_agent", lambda: user_agent.server.start(agent_settings))
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop what runs, callers first; doing it again does nothing."""
        try:
            while self._started:
                await self._started.pop().stop()
        finally:
            self._patches.close()

    def state(self, party: Party) -> Path:
        """Give a party's state directory."""
        return self.directory / party

    def address(self, party: Party) -> str:
        """Give where a party listens."""
        return self._text(party, "address")

    @property
    def authority(self) -> Path:
        """The development authority's certificate."""
        return self.directory / "tls" / "authority.pem"

    @property
    def shuffler_key(self) -> Callable[[str], bytes]:
        """What envelopes of a suite are sealed to."""
        return lambda suite: self._keys("shuffler").public_key(suite).raw

    def key_ids(self) -> frozenset[str]:
        """Give the names of the keys of both services, of every suite."""
        keys = [self._keys(party) for party in ("analyzer", "shuffler")]
        return frozenset(one.public_key(suite).key_id.hex() for one in keys for suite in SUITES)

    def private_keys(self, task: Task) -> tuple[HpkePrivateKey, HpkePrivateKey]:
        """Give what opens a task's reports, and what opens its envelopes."""
        return (
            self._keys("analyzer").private_key(task.suite, task.analyzer_key, whose="analyzer_key"),
            self._keys("shuffler").private_key(task.suite, task.shuffler_key, whose="shuffler_key"),
        )

    def operator(self) -> OperatorClient:
        """Connect to the analyzer as its operator."""
        token = self.state("analyzer") / "operator.token"
        return OperatorClient.connect(self.address("analyzer"), self.authority, token)

    def shuffler_operator(self) -> ShufflerClient:
        """Connect to the shuffler as its operator."""
        token = self.state("shuffler") / "operator.token"
        return ShufflerClient.connect(self.address("shuffler"), self.authority, token)

    def shuffler_certificate(self) -> Any:  # noqa: ANN401  # a TlsIdentity, as open_channel takes it
        """Give the certificate that the shuffler shows the analyzer."""
        return development_files(self.authority.parent, "shuffler", SystemClock()).read()

    def token(self, party: Party) -> str:
        """Give the token of a party's operator."""
        return self._text(party, "operator.token").strip()

    async def metrics(self, party: Party) -> str:
        """Read a party's page of metrics."""
        host, _, port = self._text(party, "metrics_address").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        _, _, page = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return page

    def _keys(self, party: Party) -> KeyStore:
        former = {"analyzer": "reports.key", "shuffler": "envelope.key"}[party]
        return KeyStore(StateDirectory.open(self.state(party)), _SCHEDULE, former=former)

    def _text(self, party: Party, name: str) -> str:
        return (self.state(party) / name).read_text(encoding="ascii")

    async def _start(self, party: Party, start: Callable[[], Awaitable[Service]]) -> None:
        with self._tapped(party):
            self._started.append(await start())

    @contextmanager
    def _tapped(self, party: Party) -> Iterator[None]:
        module, servicer = _SERVERS[party]
        tapped = self._tape.tapped(getattr(module, servicer), party)
        factory = self._sources.instead_of(module.secure_generator, party)
        who = WHO.set(party)
        try:
            with (
                mock.patch.object(module, servicer, tapped),
                mock.patch.object(module, "secure_generator", factory),
            ):
                yield
        finally:
            WHO.reset(who)


_SCHEDULE: Final = AnalyzerSettings(state_directory=Path(), plaintext=True).schedule()
"""Keys are only read with it, and none is rotated."""
