"""The parties on this machine, on loopback: their settings, keys and operators' clients."""

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from shuffledp.common.crypto.hpke import DEFAULT_SUITE
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import atomic_write
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.clients.issuer import IssuerClient, draw_people
from shuffledp.deploy.clients.shuffler import ShufflerClient

_STOP_SECONDS: Final = 20.0
PARTIES: Final = ("analyzer", "relay", "shuffler", "issuer", "user_agent", "publisher")
"""In the order of their start; those who are called come before their callers."""
LOOPBACK: Final = "127.0.0.1:0"
"""A free port."""


@dataclass(frozen=True, slots=True)
class Child:
    """A service's process, address and files."""

    party: str
    process: asyncio.subprocess.Process
    state: Path
    address: str
    log: Path

    async def stop(self) -> int:
        """Terminate the process, by force after a timeout, and return its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            return await self.process.wait()


Running = TypeVar("Running", bound=Child | Service)


class LocalParties(ABC, Generic[Running]):
    """
    An analyzer, a shuffler, an issuer and a user agent with one development authority.

    They are started in this order; each one's files are in a folder of its name. A relay, the
    second shuffler of tasks with two, may be started after the analyzer. `changes` replace
    settings.
    """

    analyzer: Running
    relay: Running | None = None
    shuffler: Running
    issuer: Running
    user_agent: Running

    def __init__(self, directory: Path, people: Sequence[str] = ()) -> None:
        """`people` may get tokens; without any, there is no issuer, and tasks have no tokens."""
        self.directory = directory
        self.people = people

    @abstractmethod
    async def _start(self, party: str, **settings: Any) -> Running:  # noqa: ANN401  # any setting
        """Start a party."""

    async def start_analyzer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the analyzer."""
        self.analyzer = await self._start("analyzer", **changes)
        self.identity = self.published("analyzer", "identity.pub")

    async def start_relay(self, **changes: Any) -> None:  # noqa: ANN401
        """Start a relay, which those who are started after it use."""
        settings = {"analyzer": self.analyzer.address, "analyzer_identity": self.identity}
        self.relay = await self._start("relay", **{"role": "relay"} | settings | changes)

    async def start_shuffler(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the shuffler."""
        settings = {
            "analyzer": self.analyzer.address,
            "analyzer_identity": self.identity,
            "submissions_per_connection": 0,  # unlimited: simulated users share connections
        }
        if self.relay:
            settings |= {"relay": self.relay.address, **self._relay_pin}
        self.shuffler = await self._start("shuffler", **settings | changes)
        self.shuffler_identity = self.published("shuffler", "identity.pub")

    async def start_issuer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the issuer, with secrets of the people, new ones for those who have none."""
        people, kept = self.directory / "people.txt", self.credentials
        drawn = draw_people(self.people, kept.read_bytes() if kept.exists() else b"")
        atomic_write(kept, drawn.credentials, 0o600)
        atomic_write(people, drawn.listed, 0o600)
        settings = {"issuer_name": "issuer.localhost", "people": str(people)}
        self.issuer = await self._start("issuer", **settings | changes)

    async def start_user_agent(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the user agent, which answers for several people."""
        settings: dict[str, Any] = {
            "shuffler": self.shuffler.address,
            "analyzer_identity": self.identity,
            "shuffler_identity": self.shuffler_identity,
            "inclusion_check_seconds": 0.2,
            "total_central_epsilon_cap": 20.0,  # tiny batches have hardly any amplification
            "several_persons": True,
            "allow_unlogged_tasks": "witnesses" not in changes,
            "allow_tasks_without_tokens": not self.people,
            **self._relay_pin,
        }
        if self.people:
            settings["issuer"] = self.issuer.address
            settings["issuer_identity"] = self.published("issuer", "identity.pub")
            settings["credential_file"] = str(self.credentials)
        self.user_agent = await self._start("user_agent", **settings | changes)

    async def stop(self) -> None:
        """Stop all that were started, callers first."""
        for party in reversed(PARTIES):
            if (service := getattr(self, party, None)) is not None:
                await service.stop()

    def published(self, party: str, name: str) -> str:
        """Return the content of a text file in a party's state directory."""
        return (self.directory / party / name).read_text(encoding="utf-8")

    @property
    def authority(self) -> Path:
        """File of the development authority's certificate."""
        return self.directory / "tls" / "authority.pem"

    @property
    def credentials(self) -> Path:
        """File of the people's credentials, one a line in their order."""
        return self.directory / "credentials.txt"

    @property
    def shuffler_key(self) -> bytes:
        """The shuffler's public key, to which envelopes are sealed."""
        return self._public_key("shuffler", "envelope", DEFAULT_SUITE)

    @property
    def relay_key(self) -> bytes:
        """The relay's public key, to which layers are sealed."""
        return self._public_key("relay", "relay", DEFAULT_SUITE)

    def _public_key(self, party: str, name: str, suite: str) -> bytes:
        suffix = "" if suite == DEFAULT_SUITE else f"-{suite}"
        return bytes.fromhex(self.published(party, f"{name}{suffix}.pub"))

    @property
    def _relay_pin(self) -> dict[str, str]:
        return {"relay_identity": self.published("relay", "identity.pub")} if self.relay else {}

    def operator(self) -> OperatorClient:
        """Return a client of the analyzer with its operator token."""
        token = self.directory / "analyzer" / "operator.token"
        return OperatorClient.connect(self.analyzer.address, self.authority, token)

    def shuffler_operator(self) -> ShufflerClient:
        """Return a client of the shuffler with its operator token."""
        token = self.directory / "shuffler" / "operator.token"
        return ShufflerClient.connect(self.shuffler.address, self.authority, token)

    async def publish_task(self, draft: TaskDraft) -> SignedTask:
        """Publish a task, with a key for its tokens and the shufflers' keys of its suite."""
        tokens = await self.create_token_key(draft.deadline, draft.population)
        async with self.operator() as operator:
            signed, _ = await operator.publish_task(replace(self.keyed(draft), tokens=tokens))
        return signed

    def keyed(self, draft: TaskDraft) -> TaskDraft:
        """Return a draft with the shufflers' keys of its suite."""
        relay = draft.relay
        if relay is not None:
            relay = replace(relay, key=self._public_key("relay", "relay", draft.suite))
        key = self._public_key("shuffler", "envelope", draft.suite)
        return replace(draft, shuffler_key=key, relay=relay)

    async def create_token_key(self, end: int, population: str = "") -> TokenSpec:
        """Create the token key of one task, as the issuer's operator."""
        token = self.directory / "issuer" / "operator.token"
        async with IssuerClient.connect(self.issuer.address, self.authority, token) as client:
            return await client.create_key(end, population)
