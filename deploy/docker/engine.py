"""The container engine of this machine, and what is missing if there is none that will do."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from common.errors import ShuffleDpError

_QUICK: Final = 20.0
"""Seconds for a question that an engine answers at once, or not at all."""
_LONGEST: Final = 540.0
"""Seconds for anything that an engine does, a build above all."""
_SHOWN: Final = 25
"""Last lines of what a failed command said."""

_COMMAND: Final = "docker"
_COMPOSERS: Final = (("docker", "compose"), ("docker-compose",))
_INSTALL: Final = "Debian: apt-get install --no-install-recommends docker.io docker-compose"
_PODMAN: Final = (
    "podman alone will not do: the podman-compose of Debian 12 knows neither profiles nor files of "
    "variables"
)


class EngineError(ShuffleDpError):
    """There is no container engine here, or it did not do what it was asked for."""

    status = "FAILED_PRECONDITION"


class SilentEngineError(EngineError):
    """All that is needed is installed, and the service does not answer: nobody started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A docker service that answers, with the program that reads compose files."""

    compose: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside this process's own."""

    @classmethod
    def find(cls, environment: Mapping[str, str] | None = None) -> Self:
        """
        Find it.

        Raises:
            EngineError: There is none; says what is missing, and what installs it.
            SilentEngineError: It is only not running.
        """
        given = dict(environment or {})
        if shutil.which(_COMMAND) is None:
            podman = f" ({_PODMAN})" if shutil.which("podman") else ""
            raise EngineError(f"docker is not installed{podman}. {_INSTALL}")
        composers = [one for one in _COMPOSERS if _answers((*one, "version"), given)]
        if not composers:
            raise EngineError("docker-compose is missing. Debian: apt-get install docker-compose")
        if not _answers((_COMMAND, "info"), given):
            raise SilentEngineError(
                "docker is installed, and its service does not answer: start it (systemctl start "
                "docker), and be root or in the group docker."
            )
        return cls(compose=composers[0], environment=given)

    def run(
        self,
        *arguments: str,
        text: str | None = None,
        seconds: float = _LONGEST,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """
        Run a command of the engine.

        Args:
            arguments: Of the command.
            text: What it reads.
            seconds: The most that it may take.
            check: Raise if it fails.

        Raises:
            EngineError: It failed, or took too long.
        """
        return self._call((_COMMAND, *arguments), {}, text, seconds, check=check)

    def say(self, *arguments: str, text: str | None = None) -> str:
        """Run a command of the engine, and give what it printed, without spaces around it."""
        return self.run(*arguments, text=text).stdout.strip()

    def run_compose(
        self,
        *arguments: str,
        variables: Mapping[str, str],
        text: str | None = None,
        seconds: float = _LONGEST,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a compose file, with variables that it names. Raises as `run`."""
        return self._call((*self.compose, *arguments), variables, text, seconds, check=check)

    def processors(self) -> int:
        """Give how many processors the engine's containers may have at most."""
        return int(self.say("info", "--format", "{{.NCPU}}"))

    def has_image(self, name: str) -> bool:
        """Say whether an image is here."""
        return self.run("image", "inspect", name, check=False).returncode == 0

    def _call(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        text: str | None,
        seconds: float,
        *,
        check: bool,
    ) -> subprocess.CompletedProcess[str]:
        name = " ".join(command[:3])
        try:
            outcome = subprocess.run(  # noqa: S603  # the engine, found on the PATH
                command,
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                text=True,
                timeout=seconds,
                env={**os.environ, **self.environment, **variables},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{name} … took more than {seconds:.0f} s") from error
        if check and outcome.returncode:
            said = (outcome.stdout + outcome.stderr).strip().splitlines()[-_SHOWN:]
            raise EngineError(f"{name} … failed:\n" + "\n".join(said))
        return outcome


def _answers(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Say whether a command succeeds, soon."""
    try:
        outcome = subprocess.run(  # noqa: S603  # as above
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_QUICK,
            env={**os.environ, **environment},
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return False
    return outcome.returncode == 0
