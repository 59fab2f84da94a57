"""Run docker and compose commands: build images; prepare, start and stop the services."""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Final, Self

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.runtime.certificates import RELAY
from shuffledp.deploy.docker import preparation

ROOT: Final = Path(__file__).resolve().parents[2]
"""Root of the checkout: `shuffledp/deploy` is a link, and docker follows none."""
IMAGES: Final = (
    *("shuffler", "analyzer", "issuer", "user_agent", "witness", "checking-witness"),
    *("publisher", "operator", "auditor"),
)
"""Targets of the Dockerfile; the auditor's packages are the operator's."""
_VARIANTS: Final[Mapping[str, tuple[str, str]]] = {
    "shuffler-scale": ("shuffler", "SCALE=-scale"),
    "analyzer-scale": ("analyzer", "SCALE=-scale"),
    "postgresql": ("debian", "PACKAGE=postgresql-15"),
    "haproxy": ("debian", "PACKAGE=haproxy"),
    "prometheus": ("debian", "PACKAGE=prometheus"),
}
SCALE_IMAGES: Final = tuple(_VARIANTS)
"""Variants of the parties' images, and Debian's servers, for scale-out."""

_CHECK_SECONDS: Final = 20.0
_COMMAND_SECONDS: Final = 540.0
"""Timeouts of a command that checks for an engine, and of every other command."""
_ERROR_LINES: Final = 25
_COMPOSE: Final = (("docker", "compose"), ("docker-compose",))
_INSTALL: Final = "Debian: apt-get install --no-install-recommends docker.io docker-compose"


class EngineError(ShuffleDpError):
    """No container engine is installed, or one of its commands failed."""

    status = "FAILED_PRECONDITION"


class EngineStoppedError(EngineError):
    """The container engine is installed, but its service is not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running docker service, and its compose command."""

    compose: tuple[str, ...]

    @classmethod
    def find(cls) -> Self:
        """Find this machine's engine. Raises EngineError if it is not installed or not running."""
        if shutil.which("docker") is None:
            raise EngineError(f"docker is not installed. {_INSTALL}")
        commands = [command for command in _COMPOSE if _answers(*command, "version")]
        if not commands:
            raise EngineError(f"docker-compose is not installed. {_INSTALL}")
        if not _answers("docker", "info"):
            raise EngineStoppedError(
                "docker does not answer: start its service, and run as root or in the docker group."
            )
        return cls(compose=commands[0])

    def run(
        self, *arguments: str, text: str = "", check: bool = True, compose: bool = False
    ) -> CompletedProcess[str]:
        """Run a command with `text` as its input. Raises EngineError if it times out or fails."""
        command = (*(self.compose if compose else ("docker",)), *arguments)
        name = " ".join(command[:3])
        try:
            outcome = _run(command, text, _COMMAND_SECONDS)
        except TimeoutExpired as error:
            raise EngineError(f"{name} … took more than {_COMMAND_SECONDS:.0f} s") from error
        if check and outcome.returncode:
            output = (outcome.stdout + outcome.stderr).strip().splitlines()[-_ERROR_LINES:]
            raise EngineError(f"{name} … failed:\n" + "\n".join(output))
        return outcome

    def output(self, *arguments: str) -> str:
        """Run a docker command and return its stripped output. Raises EngineError if it fails."""
        return self.run(*arguments).stdout.strip()

    def build(self, image: str, name: str, base: str, builder: str, *options: str) -> None:
        """Build one of IMAGES or SCALE_IMAGES; `builder` has the Python of `base`, and pip."""
        file = f"--file={ROOT / 'deploy' / 'docker' / 'Dockerfile'}"
        target, *variant = _VARIANTS.get(image, (image,))
        arguments = (f"BASE={base}", f"BUILDER={builder}", *variant)
        given = (f"--build-arg={argument}" for argument in arguments)
        self.run("build", *options, file, *given, f"--target={target}", f"--tag={name}", str(ROOT))


def _answers(*command: str) -> bool:
    try:
        return _run(command, "", _CHECK_SECONDS).returncode == 0
    except (OSError, TimeoutExpired):
        return False


def _run(command: tuple[str, ...], text: str, seconds: float) -> CompletedProcess[str]:
    run = partial(subprocess.run, capture_output=True, encoding="utf-8", errors="replace")
    return run(command, input=text, timeout=seconds, check=False)


SERVICES: Final = (*preparation.PARTIES, "user_agent", "publisher")
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
        own = {party: self.secrets / party for party in preparation.PARTIES}
        second = {RELAY: self.secrets / preparation.SECOND / RELAY}
        return own | (second if self.variant == "two-shufflers" else {})

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
            identity = (folder / preparation.IDENTITY_FILE).read_text(encoding="ascii")
            variables[f"SHUFFLEDP_{party.upper()}_IDENTITY"] = identity
        for party in preparation.WITNESSES:
            key = (self.secrets / party / preparation.WITNESS_FILE).read_text(encoding="ascii")
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
