"""Run the services as child processes, on free loopback ports."""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from common.errors import SettingsError
from common.runtime.service import GRPC_SILENCE
from common.runtime.state_directory import StateDirectory
from common.runtime.witness_service import load_witness_key
from common.task.token_spec import TokenSpec
from deploy.clients.analyzer import OperatorClient
from deploy.clients.issuer import IssuerClient
from deploy.clients.people import draw_people

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05
_FIXED_PORTS: Final = range(20_000, 32_000)
"""Below the ports that systems choose themselves."""


@dataclass(frozen=True, slots=True)
class Child:
    """A service's process, address and files."""

    party: str
    process: asyncio.subprocess.Process
    state: Path
    address: str
    log: Path

    def published(self, name: str) -> str:
        """Return the content of a text file in the service's state directory."""
        return (self.state / name).read_text(encoding="ascii")

    async def stop(self) -> int:
        """Terminate the process, by force after a timeout, and return its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            return await self.process.wait()


class Cluster:
    """An analyzer, a shuffler, an issuer and a user agent with one development authority."""

    analyzer: Child
    shuffler: Child
    issuer: Child
    user_agent: Child
    _modules: ClassVar[Mapping[str, str]] = {}
    """Modules that are run in place of a party's own."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] = GRPC_SILENCE,
        people: Sequence[str] = (),
        **shared: str,
    ) -> None:
        """`people` may get tokens; without any, there is no issuer, and tasks have no tokens."""
        self._directory = directory
        self._people = people
        self._environment = environment
        self._shuffler_address, self._issuer_address = _unused_address(), _unused_address()
        self._shared = {"tls_directory": str(directory / "tls"), **shared}

    async def __aenter__(self) -> Self:
        try:
            await self.start_analyzer()
            await self.start_shuffler()
            if self._people:
                await self.start_issuer()
            await self.start_user_agent()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start_analyzer(self, listen: str = "127.0.0.1:0") -> None:
        """Start the analyzer, with the shuffler and the issuer as its log's witnesses."""
        addresses = {"shuffler": self._shuffler_address}
        if self._people:
            addresses["issuer"] = self._issuer_address
        self._witnesses = []
        for party in addresses:
            _, key = load_witness_key(StateDirectory.open(self._directory / party), party)
            self._witnesses.append(key.to_text())
        witnesses = [
            {"address": address, "key": key}
            for address, key in zip(addresses.values(), self._witnesses, strict=True)
        ]
        self.analyzer = await self._start("analyzer", listen, witnesses=witnesses)

    async def start_shuffler(self, listen: str = "", *, analyzer: str | None = None) -> None:
        """Start the shuffler; `analyzer` replaces the address at which it calls the analyzer."""
        self.shuffler = await self._start(
            "shuffler",
            listen or self._shuffler_address,
            analyzer=analyzer or self.analyzer.address,
            analyzer_identity=self.analyzer.published("identity.pub"),
            submissions_per_connection=0,  # unlimited: simulated users share connections
        )

    async def start_issuer(self) -> None:
        """Start the issuer, with new secrets of the people."""
        drawn = draw_people(self._people)
        people = self._directory / "people.txt"
        people.write_bytes(drawn.listed)
        self.credentials.write_bytes(drawn.credentials)
        self.issuer = await self._start(
            "issuer",
            self._issuer_address,
            issuer_name="issuer.localhost",
            people=str(people),
            analyzer_identity=self.analyzer.published("identity.pub"),
        )

    @property
    def credentials(self) -> Path:
        """File of the people's credentials, one a line in their order."""
        return self._directory / "credentials.txt"

    async def create_token_key(self, end: int) -> TokenSpec:
        """Create the token key of one task, as the issuer's operator."""
        token = self.issuer.state / "operator.token"
        async with IssuerClient.connect(self.issuer.address, self.authority, token) as client:
            return await client.create_key(end)

    async def start_user_agent(self) -> None:
        """Start the user agent, which answers for several people."""
        tokens: dict[str, Any] = {"allow_tasks_without_tokens": True}
        if self._people:
            tokens = {
                "issuer": self.issuer.address,
                "issuer_identity": self.issuer.published("identity.pub"),
                "credential_file": str(self.credentials),
            }
        self.user_agent = await self._start(
            "user_agent",
            f"unix:{(self._directory / 'user_agent.sock').resolve()}",
            shuffler=self.shuffler.address,
            analyzer_identity=self.analyzer.published("identity.pub"),
            shuffler_identity=self.shuffler.published("identity.pub"),
            inclusion_check_seconds=1.0,
            local_epsilon_cap=20.0,
            total_central_epsilon_cap=20.0,  # tiny batches have hardly any amplification
            several_persons=True,
            **tokens,
            witnesses=self._witnesses,
        )

    @property
    def authority(self) -> Path:
        """File of the development authority's certificate."""
        return self._directory / "tls" / "authority.pem"

    @property
    def shuffler_key(self) -> bytes:
        """The shuffler's public key, to which envelopes are sealed."""
        return bytes.fromhex(self.shuffler.published("envelope.pub"))

    def operator(self) -> OperatorClient:
        """Return a client of the analyzer with its operator token."""
        token = self.analyzer.state / "operator.token"
        return OperatorClient.connect(self.analyzer.address, self.authority, token)

    async def stop(self) -> None:
        """Stop the services, callers first."""
        for party in ("user_agent", "issuer", "shuffler", "analyzer"):
            if (child := getattr(self, party, None)) is not None:
                await child.stop()

    async def _start(
        self,
        party: str,
        listen: str,
        name: str = "",
        **extra: Any,  # noqa: ANN401  # any setting
    ) -> Child:
        """Start a service with files under `name`, by default the party, and await its address."""
        name = name or party
        state = self._directory / name
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        published = state / "address"
        published.unlink(missing_ok=True)
        settings = {"listen": listen, "state_directory": str(state), **self._shared, **extra}
        file, log = self._directory / f"{name}.toml", self._directory / f"{name}.log"
        # JSON with " = " in tables is also valid TOML.
        lines = [
            f"{key} = {json.dumps(value, separators=(', ', ' = '))}\n"
            for key, value in settings.items()
        ]
        file.write_text("".join(lines), encoding="utf-8")
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._modules.get(party, party), "--settings", str(file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while process.returncode is None and not published.exists():  # noqa: ASYNC110  # a file has no event to await
                    await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode is not None:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise SettingsError(f"the {name} did not start: {(lines or ['its log is empty'])[-1]}")
        return Child(party, process, state, published.read_text(encoding="ascii"), log)


def _unused_address() -> str:
    """Return an address for a service that others must know before it starts."""
    while True:
        port = random.SystemRandom().choice(_FIXED_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
