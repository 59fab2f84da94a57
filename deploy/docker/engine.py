"""Run docker and compose commands, and build images."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Final, Self

from common.errors import ShuffleDpError

ROOT: Final = Path(__file__).parents[2]
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
