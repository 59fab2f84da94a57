"""The three services in containers, by the compose file: prepared, started, looked at, stopped."""

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.docker.engine import Engine, EngineError
from deploy.docker.images import ROOT
from deploy.docker.preparation import IDENTITY_FILE, PARTIES

SERVICES: Final = ("analyzer", "shuffler", "user_agent")
COMPOSE_FILE: Final = ROOT / "deploy" / "compose.yaml"

_LINE: Final = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>[^\0]*)")
_HEALTHY_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
_PROCESSORS: Final = 2
_LOG_LINES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One project of compose."""

    engine: Engine
    project: str
    tag: str
    """Of the images."""
    secrets: Path
    """Folder of secrets."""
    variables_file: Path
    """What compose reads variables from."""

    def prepare(self) -> None:
        """
        Make what is missing of keys and identities, and write the file of variables.

        Lines of that file that are not ours stay.

        Raises:
            EngineError: It was not made.
        """
        self.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(self._own_variables())
        for prepared in ("certificates", *PARTIES):
            self.compose("run", "--rm", "-T", f"prepare_{prepared}")
        identities = {
            f"SHUFFLEDP_{party.upper()}_IDENTITY": (
                (self.secrets / party / IDENTITY_FILE).read_text(encoding="ascii")
            )
            for party in PARTIES
        }
        self._write(self._own_variables() | identities)

    def _own_variables(self) -> dict[str, str]:
        return {
            "COMPOSE_PROJECT_NAME": self.project,
            "SHUFFLEDP_TAG": self.tag,
            "SHUFFLEDP_SECRETS": str(self.secrets.resolve()),
            "SHUFFLEDP_CPUS": str(min(_PROCESSORS, self.engine.processors())),
        }

    def _write(self, variables: Mapping[str, str]) -> None:
        self.variables_file.write_text(
            with_variables(self._read(), variables), encoding="utf-8", errors="surrogateescape"
        )

    def _read(self) -> str:
        if not self.variables_file.exists():
            return ""
        return self.variables_file.read_text(encoding="utf-8", errors="surrogateescape")

    def start(self) -> None:
        """
        Start the three and wait until each answers its health check.

        Raises:
            EngineError: One does not; shows the end of its log.
        """
        self.compose("up", "-d", *SERVICES)
        self.wait()

    def wait(self, *services: str, seconds: float = _HEALTHY_SECONDS) -> None:
        """Wait until services, all three if none is named, are healthy. Raises EngineError."""
        give_up = time.monotonic() + seconds
        for service in services or SERVICES:
            while (state := self.health(service)) != "healthy":
                if time.monotonic() > give_up:
                    said = self.compose("logs", f"--tail={_LOG_LINES}", service, check=False).stdout
                    raise EngineError(f"the {service} is {state}, not healthy:\n{said}")
                time.sleep(_POLL_SECONDS)

    def health(self, service: str) -> str:
        """Give what the engine thinks of a service: starting, healthy, unhealthy, or none."""
        container = self.container(service)
        outcome = self.engine.run(
            "inspect", "--format", "{{.State.Health.Status}}", container, check=False
        )
        return outcome.stdout.strip() or "not there"

    def container(self, service: str) -> str:
        """Give the id of a service's container; empty if there is none."""
        labels = {"project": self.project, "service": service}
        filters = [f"--filter=label=com.docker.compose.{n}={v}" for n, v in labels.items()]
        return self.engine.say("ps", "--all", "--quiet", "--no-trunc", *filters)

    def stop(self, *, remove_volumes: bool = False) -> None:
        """Stop and remove containers and networks; volumes stay unless they are not to."""
        options = ["--volumes"] if remove_volumes else []
        self.compose("down", "--remove-orphans", *options)

    def compose(
        self, *arguments: str, text: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the compose file. Raises EngineError unless `check` is false."""
        self.variables_file.touch()
        return self.engine.run_compose(
            *("--project-name", self.project, "--env-file", str(self.variables_file)),
            *("--file", str(COMPOSE_FILE), *arguments),
            variables=variables_of(self._read()),
            text=text,
            check=check,
        )


def variables_of(text: str) -> dict[str, str]:
    """Read lines of NAME=VALUE; all others are comments."""
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line["name"]: line["value"] for line in found if line}


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """Set variables in such a file, and leave every other line as it is."""
    kept = [
        line
        for line in text.splitlines()
        if not ((found := _LINE.fullmatch(line)) and found["name"] in variables)
    ]
    return "".join(f"{line}\n" for line in [*kept, *map("=".join, variables.items())])
