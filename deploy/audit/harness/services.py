"""The three real services in this process, on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

import analyzer.server
import shuffler.server
import user_agent.server
from analyzer.server import AnalyzerService
from analyzer.settings import AnalyzerSettings
from common.crypto.signing import SignedTask
from common.runtime.clock import SystemClock
from common.runtime.rpc import open_channel
from common.runtime.tls import development_files
from common.task.draft import TaskDraft
from deploy.audit.harness.tasks import draft
from deploy.clients.analyzer import OperatorClient
from protos.shuffledp.v1 import analyzer_pb2_grpc, shuffler_pb2_grpc, user_agent_pb2_grpc
from shuffler.server import ShufflerService
from shuffler.settings import ShufflerSettings
from user_agent.server import UserAgentService
from user_agent.settings import UserAgentSettings

_LISTEN: Final = "127.0.0.1:0"


@dataclass
class Services:
    """Analyzer, shuffler and user agent. Keyword arguments change their settings."""

    directory: Path

    async def start(self) -> None:
        """Start all three, each after the one that it calls."""
        await self.start_analyzer()
        await self.start_shuffler()
        await self.start_user_agent()

    async def start_analyzer(self, listen: str = _LISTEN, **changes: Any) -> None:  # noqa: ANN401  # settings
        """Start the analyzer."""
        settings = self._settings("analyzer", listen) | {"opening_processes": 1} | changes
        self.analyzer: AnalyzerService = await analyzer.server.start(AnalyzerSettings(**settings))
        self.identity = (self.directory / "analyzer" / "identity.pub").read_text(encoding="ascii")

    async def start_shuffler(self, listen: str = _LISTEN, **changes: Any) -> None:  # noqa: ANN401  # settings
        """Start the shuffler."""
        settings = self._settings("shuffler", listen) | {
            "analyzer": self.analyzer.address,
            "analyzer_identity": self.identity,
            "opening_processes": 1,
        }
        self.shuffler: ShufflerService = await shuffler.server.start(
            ShufflerSettings(**settings | changes)
        )
        text = (self.directory / "shuffler" / "envelope.pub").read_text(encoding="ascii")
        self.shuffler_key = bytes.fromhex(text)
        self.shuffler_identity = (self.directory / "shuffler" / "identity.pub").read_text(
            encoding="ascii"
        )

    async def start_user_agent(self, **changes: Any) -> None:  # noqa: ANN401  # settings
        """Start a user agent for several people."""
        settings = self._settings("user_agent", _LISTEN) | {
            "shuffler": self.shuffler.address,
            "analyzer_identity": self.identity,
            "shuffler_identity": self.shuffler_identity,
            "inclusion_check_seconds": 0.2,
            # Tiny batches claim little less than their local epsilon.
            "total_central_epsilon_cap": 20.0,
            "several_persons": True,
        }
        self.user_agent: UserAgentService = await user_agent.server.start(
            UserAgentSettings(**settings | changes)
        )

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

    def channel_as(self, name: str) -> grpc.aio.Channel:
        """Open a channel to the analyzer, with a certificate for this name."""
        tls = self.directory / "tls"
        own = development_files(tls, name, SystemClock()).read()
        return open_channel(self.analyzer.address, "analyzer", own.authority, own=own)

    @asynccontextmanager
    async def stubs(
        self,
    ) -> AsyncIterator[
        tuple[
            "user_agent_pb2_grpc.UserAgentAsyncStub",
            "shuffler_pb2_grpc.ShufflerAsyncStub",
            "analyzer_pb2_grpc.AnalyzerAsyncStub",
        ]
    ]:
        """Yield bare stubs for arbitrary messages; the analyzer takes its stub for the operator."""
        async with (
            self.channel("user_agent", self.user_agent.address) as agent,
            self.channel("shuffler", self.shuffler.address) as shuffler_,
            self.channel_as("operator") as analyzer_,
        ):
            yield (
                user_agent_pb2_grpc.UserAgentStub(agent),
                shuffler_pb2_grpc.ShufflerStub(shuffler_),
                analyzer_pb2_grpc.AnalyzerStub(analyzer_),
            )

    async def publish(self, **changes: Any) -> SignedTask:  # noqa: ANN401  # fields of a draft
        """Publish a small task as the operator."""
        wanted: TaskDraft = draft(self.shuffler_key, **changes)
        async with self.operator() as operator:
            return await operator.create_task(wanted)
