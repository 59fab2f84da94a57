"""The container engine of this machine, with the images that it builds."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Final, Self

from common.errors import ShuffleDpError

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ("shuffler", "analyzer", "user_agent", "operator")
"""Targets of the Dockerfile, each with its own lock."""

_QUICK: Final = 20.0
"""Seconds for a question that an engine answers at once, or not at all."""
_LONGEST: Final = 540.0
"""Seconds for any command, above all a build."""
_SHOWN: Final = 25
"""Last lines of a failed command's output."""
_COMPOSERS: Final = (("docker", "compose"), ("docker-compose",))
_INSTALL: Final = "Debian: apt-get install --no-install-recommends docker.io docker-compose"


class EngineError(ShuffleDpError):
    """There is no container engine here, or one of its commands failed."""

    status = "FAILED_PRECONDITION"


class SilentEngineError(EngineError):
    """The container engine is installed, and its service is not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A docker service that answers, with the program that reads compose files."""

    compose: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside this process's own."""

    @classmethod
    def find(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Find this machine's engine; raise EngineError if it is not installed or not running."""
        given = dict(environment or {})
        if shutil.which("docker") is None:
            raise EngineError(f"docker is not installed. {_INSTALL}")
        composers = [one for one in _COMPOSERS if _answers((*one, "version"), given)]
        if not composers:
            raise EngineError(f"docker-compose is missing. {_INSTALL}")
        if not _answers(("docker", "info"), given):
            raise SilentEngineError(
                "docker does not answer: start its service, and be root or in the group docker."
            )
        return cls(compose=composers[0], environment=given)

    def run(
        self, *arguments: str, text: str = "", check: bool = True, compose: bool = False
    ) -> CompletedProcess[str]:
        """
        Run a docker command, or one on a compose file, that reads `text`.

        Raises:
            EngineError: It failed, unless `check` is false, or took too long.
        """
        command = (*(self.compose if compose else ("docker",)), *arguments)
        name = " ".join(command[:3])
        try:
            outcome = _run(command, self.environment, text, _LONGEST)
        except TimeoutExpired as error:
            raise EngineError(f"{name} … took more than {_LONGEST:.0f} s") from error
        if check and outcome.returncode:
            said = (outcome.stdout + outcome.stderr).strip().splitlines()[-_SHOWN:]
            raise EngineError(f"{name} … failed:\n" + "\n".join(said))
        return outcome

    def say(self, *arguments: str, text: str = "") -> str:
        """Run a docker command, and return its output without spaces around it."""
        return self.run(*arguments, text=text).stdout.strip()

    def build(self, image: str, name: str, base: str, builder: str, *options: str) -> None:
        """
        Build one target of the Dockerfile on the image `base`; raise EngineError if it fails.

        `builder` is the image that it is built in: the same Python, with pip.
        """
        file = f"--file={ROOT / 'deploy' / 'docker' / 'Dockerfile'}"
        bases = (f"--build-arg=BASE={base}", f"--build-arg=BUILDER={builder}")
        self.run("build", *options, file, *bases, f"--target={image}", f"--tag={name}", str(ROOT))


def _answers(command: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    try:
        return _run(command, environment, "", _QUICK).returncode == 0
    except (OSError, TimeoutExpired):
        return False


def _run(
    command: tuple[str, ...], environment: Mapping[str, str], text: str, seconds: float
) -> CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # the engine, found on the PATH
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **environment},
        check=False,
    )
