"""The three services in this process, with gRPC stubs and small tasks."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import grpc

from shuffledp.audit.harness import services
from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.common.runtime.tls import development_files
from shuffledp.deploy.clients.local_parties import LOOPBACK
from shuffledp.deploy.load.scenario import LoadChecks, LoadTarget
from shuffledp.deploy.load.target import Target, connect
from shuffledp.protos.shuffledp.v1 import analyzer_pb2_grpc, shuffler_pb2_grpc, user_agent_pb2_grpc
from tests.support.http_calls import HttpConnection
from tests.support.tasks import draft

_PUBLISHED: Final = itertools.count()
"""Seconds between the deadlines of tasks, so that none repeats another."""


class Services(services.Services):
    """Analyzer, shuffler and user agent, for tests."""

    def _settings(self, party: str) -> dict[str, Any]:
        """Let devices call over HTTP too."""
        over_http = {"http_listen": LOOPBACK} if party in {"shuffler", "issuer"} else {}
        return super()._settings(party) | over_http

    async def http(self, party: str = "shuffler") -> HttpConnection:
        """Connect to a party over HTTP, as a device does."""
        address = self.published(party, "http_address")
        return await HttpConnection.open(address, self.authority.read_bytes(), party)

    async def start(self) -> None:
        """Start each service after the one that it calls."""
        await self.start_analyzer()
        await self.start_shuffler()
        await self.start_user_agent()

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
        """Yield a stub for each service; the analyzer's has the operator's certificate."""
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

    def load_target(self, signed: SignedTask) -> AbstractAsyncContextManager[Target]:
        """Connect the load generator to these services, with both operators' tokens."""
        tokens = (self.directory / party / "operator.token" for party in ("shuffler", "analyzer"))
        there = LoadTarget(
            shuffler=self.shuffler.address,
            authority=self.authority,
            shuffler_token_file=next(tokens),
        )
        own = LoadChecks(analyzer=self.analyzer.address, analyzer_token_file=next(tokens))
        return connect(there, signed.digest(), own)

    async def publish(self, **changes: Any) -> SignedTask:
        """Publish a small task with a deadline of its own, as the operator."""
        wanted = draft(self.shuffler_key, **{"deadline": FAR_FUTURE - next(_PUBLISHED), **changes})
        async with self.operator() as operator:
            signed, _ = await operator.publish_task(wanted)
            return signed
