"""Run the services as child processes on loopback, on free ports or those of an earlier run."""

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from common.errors import SettingsError
from common.runtime.service import GRPC_SILENCE
from common.runtime.state_directory import StateDirectory
from common.runtime.witness_service import load_witness_key
from deploy.clients.local_parties import LOOPBACK, Child, LocalParties

_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_FIXED_PORTS: Final = range(20_000, 32_000)
"""Below the ports that systems choose themselves."""


class Cluster(LocalParties[Child]):
    """The parties as processes, with the shuffler and the issuer as witnesses of the log."""

    _modules: ClassVar[Mapping[str, str]] = {"relay": "shuffler"}
    """Modules that are run in place of one of the party's name."""
    _process_group: ClassVar[int | None] = None
    """0 for groups of their own, which a terminal's Ctrl-C does not reach."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] = GRPC_SILENCE,
        people: Sequence[str] = (),
        *,
        two_shufflers: bool = False,
        **shared: Any,  # noqa: ANN401  # any setting
    ) -> None:
        """`shared` are settings of all parties, None for an unset one; see `LocalParties`."""
        super().__init__(directory, people)
        self._two_shufflers = two_shufflers
        self._environment = environment
        witnesses = ("shuffler", "issuer") if people else ("shuffler",)
        self._witness_addresses = {
            party: kept_address(directory / party / "address") for party in witnesses
        }
        agent = f"unix:{(directory / 'user_agent.sock').resolve()}"
        self._listen = {**self._witness_addresses, "user_agent": agent}
        self._shared = {"tls_directory": str(directory / "tls"), **shared}

    async def __aenter__(self) -> Self:
        try:
            await self.start_analyzer()
            if self._two_shufflers:
                await self.start_relay()
            await self.start_shuffler()
            if self.people:
                await self.start_issuer()
            await self.start_user_agent()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start_analyzer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the analyzer, which knows its log's witnesses before they start."""
        witnesses = []
        for party, address in self._witness_addresses.items():
            _, key = load_witness_key(StateDirectory.open(self.directory / party), party)
            witnesses.append({"address": address, "key": key.to_text()})
        self._witness_keys = [one["key"] for one in witnesses]
        await super().start_analyzer(**{"witnesses": witnesses} | changes)

    async def start_issuer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the issuer, with new secrets of the people."""
        await super().start_issuer(**{"analyzer_identity": self.identity} | changes)

    async def start_user_agent(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the user agent, on a Unix socket."""
        own = dict.fromkeys(("local_epsilon_cap", "coalition_epsilon_cap"), 20.0)
        own |= {"inclusion_check_seconds": 1.0}
        changes = {**own, "witnesses": self._witness_keys, **changes}
        await super().start_user_agent(**changes)

    async def _start(self, party: str, name: str = "", **settings: Any) -> Child:  # noqa: ANN401
        """Start a service with files under `name`, by default the party, and await its address."""
        name = name or party
        state = self.directory / name
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        published = state / "address"
        published.unlink(missing_ok=True)
        listen = self._listen.get(name, LOOPBACK)
        own = {"listen": listen, "state_directory": str(state), **self._shared}
        file, log = self.directory / f"{name}.toml", self.directory / f"{name}.log"
        # JSON with " = " in tables is also valid TOML.
        lines = ["# Rewritten at each start.\n"]
        lines += [
            f"{key} = {json.dumps(value, separators=(', ', ' = '), ensure_ascii=False)}\n"
            for key, value in (own | settings).items()
            if value is not None
        ]
        file.write_text("".join(lines), encoding="utf-8")
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._modules.get(party, party), "--settings", str(file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
                process_group=self._process_group,
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while process.returncode is None and not published.exists():  # noqa: ASYNC110  # a file has no event to await
                    await asyncio.sleep(_POLL_SECONDS)
            if process.returncode is None:
                return Child(party, process, state, published.read_text(encoding="utf-8"), log)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise SettingsError(f"the {name} did not start: {(lines or ['its log is empty'])[-1]}")


def kept_address(published: Path) -> str:
    """
    Return an address for a service that others must know before it starts.

    Its port is the one that an earlier run has published, if that is free.
    """
    port = 0
    if published.exists():
        port = int(published.read_text(encoding="utf-8").rpartition(":")[2])
    while True:
        port = port or random.SystemRandom().choice(_FIXED_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
        port = 0
