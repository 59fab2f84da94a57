"""The three services as child processes of this one, on free loopback ports."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from common.errors import SettingsError
from common.runtime.service import GRPC_SILENCE
from deploy.clients.analyzer import OperatorClient

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Child:
    """One party: its process and its files."""

    party: str
    process: asyncio.subprocess.Process
    state: Path
    address: str
    log: Path

    async def stop(self) -> int:
        """Ask it to stop, wait, and give its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            return await self.process.wait()

    async def kill(self) -> None:
        """Kill it without notice, as a crash would."""
        self.process.kill()
        await self.process.wait()


class Cluster:
    """
    Analyzer, shuffler and user agent, each with a state directory and a log of its own.

    They share one folder for a development authority, and nothing else.
    """

    def __init__(
        self,
        directory: Path,
        *,
        log_level: str = "INFO",
        environment: Mapping[str, str] = GRPC_SILENCE,
        metrics: bool = False,
    ) -> None:
        """
        Plan the three.

        Args:
            directory: Where their files go.
            log_level: Of their logs.
            environment: Variables that they are given beside this process's own.
            metrics: Let each serve its metrics, and write where into its state directory.
        """
        self._metrics = metrics
        self._directory = directory
        self._log_level = log_level
        self._environment = dict(environment)
        self._children: dict[str, Child] = {}

    async def __aenter__(self) -> Self:
        """Start the three, each after the one that it calls."""
        try:
            await self.start_analyzer()
            await self.start_shuffler()
            await self.start_user_agent()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start_analyzer(self, listen: str = "127.0.0.1:0") -> None:
        """Start the analyzer."""
        await self._start("analyzer", {"listen": listen})

    async def start_shuffler(
        self, listen: str = "127.0.0.1:0", *, analyzer: str | None = None
    ) -> None:
        """Start the shuffler; it calls the analyzer, or what stands before it at an address."""
        identity = (self.analyzer.state / "identity.pub").read_text(encoding="ascii")
        await self._start(
            "shuffler",
            {
                "listen": listen,
                "analyzer": analyzer or self.analyzer.address,
                "analyzer_identity": identity,
                "submissions_per_connection": 0,  # many users' come through one
            },
        )

    async def start_user_agent(self) -> None:
        """Start the user agent, for several persons; it calls the shuffler."""
        identity = (self.analyzer.state / "identity.pub").read_text(encoding="ascii")
        pinned = (self.shuffler.state / "identity.pub").read_text(encoding="ascii")
        await self._start(
            "user_agent",
            {
                "listen": f"unix:{(self._directory / 'user_agent.sock').resolve()}",
                "shuffler": self.shuffler.address,
                "analyzer_identity": identity,
                "shuffler_identity": pinned,
                "inclusion_check_seconds": 1.0,
                "local_epsilon_cap": 20.0,
                "total_central_epsilon_cap": 20.0,  # tiny batches claim little more than local
                "several_persons": True,
            },
        )

    @property
    def analyzer(self) -> Child:
        """The analyzer's process."""
        return self._children["analyzer"]

    @property
    def shuffler(self) -> Child:
        """The shuffler's process."""
        return self._children["shuffler"]

    @property
    def user_agent(self) -> Child:
        """The user agent's process."""
        return self._children["user_agent"]

    @property
    def authority(self) -> Path:
        """The development authority's certificate."""
        return self._directory / "tls" / "authority.pem"

    @property
    def shuffler_key(self) -> bytes:
        """The key that envelopes are sealed to."""
        text = (self.shuffler.state / "envelope.pub").read_text(encoding="ascii")
        return bytes.fromhex(text)

    def operator(self) -> OperatorClient:
        """Connect to the analyzer as its operator."""
        token = self.analyzer.state / "operator.token"
        return OperatorClient.connect(self.analyzer.address, self.authority, token)

    async def stop(self) -> None:
        """Stop the three, callers first."""
        for party in ("user_agent", "shuffler", "analyzer"):
            if party in self._children:
                await self._children[party].stop()

    async def _start(self, party: str, settings: dict[str, str | float | bool]) -> None:
        state = self._directory / party
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        (state / "address").unlink(missing_ok=True)
        settings |= {
            "state_directory": str(state),
            "tls_directory": str(self._directory / "tls"),
            "log_level": self._log_level,
        }
        if self._metrics:
            settings["metrics_listen"] = "127.0.0.1:0"
        file = self._directory / f"{party}.toml"
        file.write_text(
            "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items()),
            encoding="utf-8",
        )
        log = self._directory / f"{party}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", party, "--settings", str(file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while process.returncode is None and not (state / "address").exists():  # noqa: ASYNC110  # a file
                    await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode is not None:
            raise SettingsError(f"the {party} did not start: {_last_line(log)}")
        address = (state / "address").read_text(encoding="ascii")
        self._children[party] = Child(party, process, state, address, log)


def _toml(value: str | float | bool) -> str:  # noqa: FBT001  # a value of a settings file
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
