"""The container engine of this machine, whichever it is, and what is missing if there is none."""

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

INSTALL: Final = "Debian: apt-get install --no-install-recommends docker.io docker-compose"


class EngineError(ShuffleDpError):
    """There is no container engine here, or it did not do what it was asked for."""

    status = "FAILED_PRECONDITION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that answers, with the command that reads compose files."""

    command: str
    """docker or podman."""
    compose: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside this process's own."""

    @classmethod
    def find(cls, environment: Mapping[str, str] | None = None) -> Self:
        """
        Find the first engine that answers: docker, then podman.

        Raises:
            EngineError: None does; says what is missing, and what installs it.
        """
        given = dict(environment or {})
        reasons = []
        for command in ("docker", "podman"):
            if shutil.which(command) is None:
                continue
            if not _answers((command, "info"), given):
                reasons.append(_silence(command))
                continue
            for compose in _composers(command):
                if shutil.which(compose[0]) and _answers((*compose, "version"), given):
                    return cls(command=command, compose=compose, environment=given)
            reasons.append(_no_composer(command))
        raise EngineError(
            " ".join(reasons) or f"there is no container engine here: docker or podman. {INSTALL}"
        )

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
        return self._call((self.command, *arguments), {}, text, seconds, check=check)

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
        form = "{{.NCPU}}" if self.command == "docker" else "{{.Host.CPUs}}"
        return int(self.say("info", "--format", form))

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


def _composers(command: str) -> tuple[tuple[str, ...], ...]:
    if command == "podman":
        return (("podman-compose",),)
    return (("docker", "compose"), ("docker-compose",))


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


def _silence(command: str) -> str:
    if command == "podman":
        return "podman is installed, and `podman info` fails."
    return (
        "docker is installed, and its service does not answer: start it (systemctl start docker), "
        "and be root or in the group docker."
    )


def _no_composer(command: str) -> str:
    missing = "podman-compose" if command == "podman" else "docker-compose"
    return f"{command} runs, and {missing} is missing: apt-get install {missing}."
