"""Prepare, start and stop the services with compose."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from common.runtime.certificates import RELAY
from deploy.docker.engine import ROOT, Engine, EngineError
from deploy.docker.preparation import IDENTITY_FILE, PARTIES, SECOND, WITNESS_FILE, WITNESSES

SERVICES: Final = (*PARTIES, "user_agent", "publisher")
SCALE_GROUPS: Final = (
    ("postgres", "analyzer-scheduler", "shuffler-scheduler"),
    ("analyzer", "shuffler", "issuer"),
    ("analyzer-worker-1", "analyzer-worker-2", "shuffler-worker-1", "shuffler-worker-2"),
    *(("front-end-1",), ("front-end-2",), ("front-end-3",)),
    ("haproxy", "user_agent", "prometheus"),
)
"""Services of the scale deployment. A group starts once those before it are healthy, so that an
upgrade replaces the front-ends one by one, after the coordinators."""
VARIANTS: Final[Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]]] = {
    "": (["compose.yaml"], [SERVICES]),
    "scale": (["compose.scale.yaml"], SCALE_GROUPS),
    "two-shufflers": (["compose.yaml", "compose.two-shufflers.yaml"], [(*SERVICES, RELAY)]),
}
"""Files of each deployment, which compose merges, and its services in the order of their start."""
_FOLDER: Final = ROOT / "deploy"
_HEALTHY_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
_PROCESSORS: Final = 2
_LOG_LINES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A compose project: one of the deployments, under the same names and keys."""

    engine: Engine
    variant: str = ""
    """One of VARIANTS."""
    project: str = "shuffledp"
    tag: str = "local"
    secrets: Path = _FOLDER / "secrets"
    variables_file: Path = _FOLDER / ".env"

    @property
    def folders(self) -> dict[str, Path]:
        """The folder of secrets of each party with an identity."""
        own = {party: self.secrets / party for party in PARTIES}
        second = {RELAY: self.secrets / SECOND / RELAY} if self.variant == "two-shufflers" else {}
        return own | second

    def prepare(self) -> bool:
        """
        Create missing keys and identities, and write the variables file.

        Returns whether certificates were created or renewed: containers see replaced files only
        once they are created again. Raises EngineError.
        """
        self.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = self._certificates()
        processors = int(self.engine.output("info", "--format", "{{.NCPU}}"))
        variables = {
            "COMPOSE_PROJECT_NAME": self.project,
            "SHUFFLEDP_TAG": self.tag,
            "SHUFFLEDP_SECRETS": str(self.secrets.resolve()),
            "SHUFFLEDP_CPUS": str(min(_PROCESSORS, processors)),
        }
        self._write(variables)
        for target in ("certificates", *self.folders):
            self.compose("run", "--rm", "-T", f"prepare_{target}")
        for party, folder in self.folders.items():
            identity = (folder / IDENTITY_FILE).read_text(encoding="ascii")
            variables[f"SHUFFLEDP_{party.upper()}_IDENTITY"] = identity
        for party in WITNESSES:
            key = (self.secrets / party / WITNESS_FILE).read_text(encoding="ascii")
            variables[f"SHUFFLEDP_{party.upper()}_WITNESS"] = key
        self._write(variables)
        return before != self._certificates()

    def _certificates(self) -> list[int]:
        """Return values that change with the parties' certificates."""
        files = (folder / f"{party}.pem" for party, folder in self.folders.items())
        return [file.stat().st_mtime_ns for file in files if file.exists()]

    def start(self, *, again: bool = False) -> None:
        """Start all services, also running ones if `again`, and wait until they are healthy."""
        for group in VARIANTS[self.variant][1]:
            self.compose("up", "-d", "--remove-orphans", *["--force-recreate"] * again, *group)
            self.wait(*group)

    def wait(self, *services: str) -> None:
        """Wait until services, by default all, are healthy. Raises EngineError."""
        deadline, health = time.monotonic() + _HEALTHY_SECONDS, "{{.State.Health.Status}}"
        for service in services or chain.from_iterable(VARIANTS[self.variant][1]):
            inspect = ("inspect", "--format", health, self.container(service))
            while self.engine.run(*inspect, check=False).stdout.strip() != "healthy":
                if time.monotonic() > deadline:
                    logs = self.compose("logs", f"--tail={_LOG_LINES}", service, check=False).stdout
                    raise EngineError(f"the {service} is not healthy:\n{logs}")
                time.sleep(_POLL_SECONDS)

    def container(self, service: str) -> str:
        """Return the id of a service's container, or an empty string if there is none."""
        labels = {"project": self.project, "service": service}
        filters = [f"--filter=label=com.docker.compose.{n}={v}" for n, v in labels.items()]
        return self.engine.output("ps", "--all", "--quiet", "--no-trunc", *filters)

    def stop(self) -> None:
        """Remove containers and networks of every deployment; keep volumes. Raises EngineError."""
        for variant in VARIANTS:
            replace(self, variant=variant).compose("down", "--remove-orphans")

    def compose(self, *arguments: str, text: str = "", check: bool = True) -> CompletedProcess[str]:
        """Run a compose command. Raises EngineError on a timeout or, if `check`, on a failure."""
        self.variables_file.touch()
        project = ("--project-name", self.project, "--env-file", str(self.variables_file))
        files = (f"--file={_FOLDER / name}" for name in VARIANTS[self.variant][0])
        return self.engine.run(*project, *files, *arguments, text=text, check=check, compose=True)

    def _write(self, variables: Mapping[str, str]) -> None:
        file, encoding = self.variables_file, ("utf-8", "surrogateescape")
        before = file.read_text(*encoding) if file.exists() else ""
        file.write_text(with_variables(before, variables), *encoding)


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """Set variables in the text of a NAME=VALUE file; keep all other lines."""
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in variables]
    return "".join(f"{line}\n" for line in [*kept, *map("=".join, variables.items())])
