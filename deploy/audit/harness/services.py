"""The real services in this process, on loopback."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

import analyzer.server
import issuer.server
import shuffler.server
import user_agent.server
from analyzer.server import AnalyzerService
from analyzer.settings import AnalyzerSettings
from common.runtime.rpc import open_channel
from common.task.token_spec import TokenSpec
from deploy.clients.analyzer import OperatorClient
from deploy.clients.issuer import IssuerClient
from deploy.clients.people import draw_people
from issuer.server import IssuerService
from issuer.settings import IssuerSettings
from shuffler.server import ShufflerService
from shuffler.settings import ShufflerSettings
from user_agent.server import UserAgentService
from user_agent.settings import UserAgentSettings

_LISTEN: Final = "127.0.0.1:0"


@dataclass
class Services:
    """
    Analyzer, shuffler and user agent, started in this order; `changes` replace settings.

    An issuer may be started before the user agent, which then answers tasks with tokens only.
    """

    directory: Path
    issuer: IssuerService | None = None

    async def start_analyzer(self, listen: str = _LISTEN, **changes: Any) -> None:  # noqa: ANN401  # any setting
        """Start the analyzer."""
        settings = self._settings("analyzer", listen) | {"opening_processes": 1} | changes
        self.analyzer: AnalyzerService = await analyzer.server.start(AnalyzerSettings(**settings))
        self.identity = (self.directory / "analyzer" / "identity.pub").read_text(encoding="ascii")

    async def start_shuffler(self, listen: str = _LISTEN, **changes: Any) -> None:  # noqa: ANN401  # any setting
        """Start the shuffler."""
        settings = self._settings("shuffler", listen) | {
            "analyzer": self.analyzer.address,
            "analyzer_identity": self.identity,
            "opening_processes": 1,
            "key_lifetime_days": 0,  # a task may end in any year
            "submissions_per_connection": 0,  # simulated users share connections
        }
        self.shuffler: ShufflerService = await shuffler.server.start_coordinator(
            ShufflerSettings(**settings | changes)
        )
        state = self.directory / "shuffler"
        self.shuffler_key = bytes.fromhex((state / "envelope.pub").read_text(encoding="ascii"))
        self.shuffler_identity = (state / "identity.pub").read_text(encoding="ascii")

    async def start_issuer(self, people: Sequence[str]) -> None:
        """Start an issuer of tokens for some people."""
        drawn, listed = draw_people(people), self.directory / "people.txt"
        listed.write_bytes(drawn.listed)
        self.credentials.write_bytes(drawn.credentials)
        settings = self._settings("issuer", _LISTEN) | {"people": listed}
        self.issuer = await issuer.server.start(
            IssuerSettings(issuer_name="issuer.localhost", **settings)
        )

    @property
    def credentials(self) -> Path:
        """File of the people's credentials."""
        return self.directory / "credentials.txt"

    async def create_token_key(self, end: int) -> TokenSpec:
        """Create the token key of one task, as the issuer's operator."""
        token_file = self.directory / "issuer" / "operator.token"
        authority = self.directory / "tls" / "authority.pem"
        address = "" if self.issuer is None else self.issuer.address
        async with IssuerClient.connect(address, authority, token_file) as client:
            return await client.create_key(end)

    async def start_user_agent(self, **changes: Any) -> None:  # noqa: ANN401  # any setting
        """Start a user agent for several people."""
        settings = self._settings("user_agent", _LISTEN) | {
            "shuffler": self.shuffler.address,
            "analyzer_identity": self.identity,
            "shuffler_identity": self.shuffler_identity,
            "inclusion_check_seconds": 0.2,
            # A tiny batch's central epsilon is hardly below its local epsilon.
            "total_central_epsilon_cap": 20.0,
            "several_persons": True,
            "allow_unlogged_tasks": "witnesses" not in changes,
        }
        if self.issuer is None:
            settings["allow_tasks_without_tokens"] = True
        else:
            identity = self.directory / "issuer" / "identity.pub"
            settings["issuer"] = self.issuer.address
            settings["issuer_identity"] = identity.read_text(encoding="ascii")
            settings["credential_file"] = self.credentials
        complete = UserAgentSettings(**settings | changes)
        self.user_agent: UserAgentService = await user_agent.server.start(complete)

    def _settings(self, party: str, listen: str) -> dict[str, Any]:
        return {
            "state_directory": self.directory / party,
            "listen": listen,
            "tls_directory": self.directory / "tls",
        }

    async def stop(self) -> None:
        """Stop all, callers first."""
        for service in (self.user_agent, self.issuer, self.shuffler, self.analyzer):
            if service is not None:
                await service.stop()

    def operator(self) -> OperatorClient:
        """Connect as the analyzer's operator."""
        return OperatorClient.connect(
            self.analyzer.address,
            self.directory / "tls" / "authority.pem",
            self.directory / "analyzer" / "operator.token",
        )

    def channel(self, party: str, address: str) -> grpc.aio.Channel:
        """Open a channel to a service, without a certificate, as devices do."""
        authority = (self.directory / "tls" / "authority.pem").read_bytes()
        return open_channel(address, party, authority)


def files_of(state: Path) -> dict[str, bytes]:
    """Read a party's files by path, skipping files that vanish meanwhile."""
    found = {}
    for path in sorted(state.rglob("*")):
        if path.is_file():
            try:
                found[str(path.relative_to(state))] = path.read_bytes()
            except FileNotFoundError:
                continue
    return found
