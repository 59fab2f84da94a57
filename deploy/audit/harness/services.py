"""The three real services in this process, on loopback."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

import analyzer.server
import shuffler.server
import user_agent.server
from analyzer.server import AnalyzerService
from analyzer.settings import AnalyzerSettings
from common.runtime.rpc import open_channel
from deploy.clients.analyzer import OperatorClient
from shuffler.server import ShufflerService
from shuffler.settings import ShufflerSettings
from user_agent.server import UserAgentService
from user_agent.settings import UserAgentSettings

_LISTEN: Final = "127.0.0.1:0"


@dataclass
class Services:
    """Analyzer, shuffler and user agent, started in this order; `changes` replace settings."""

    directory: Path

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
        }
        self.shuffler: ShufflerService = await shuffler.server.start_coordinator(
            ShufflerSettings(**settings | changes)
        )
        state = self.directory / "shuffler"
        self.shuffler_key = bytes.fromhex((state / "envelope.pub").read_text(encoding="ascii"))
        self.shuffler_identity = (state / "identity.pub").read_text(encoding="ascii")

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
        }
        complete = UserAgentSettings(**settings | changes)
        self.user_agent: UserAgentService = await user_agent.server.start(complete)

    def _settings(self, party: str, listen: str) -> dict[str, Any]:
        return {
            "state_directory": self.directory / party,
            "listen": listen,
            "tls_directory": self.directory / "tls",
        }

    async def stop(self) -> None:
        """Stop all three, callers first."""
        for service in (self.user_agent, self.shuffler, self.analyzer):
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
