"""
A docker service for one run, if docker is installed and its service is not running.

It has its own network namespace, so that the machine's network stays unchanged.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from shuffledp.deploy.docker.deployment import Engine, EngineError, EngineStoppedError

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2
_SHOWN: Final = 10

_NEEDED: Final = ("docker", "dockerd", "unshare", "ip")


@contextmanager
def private_engine() -> Iterator[Engine]:
    """
    Start a docker service in a temporary folder; stop it and remove the folder afterwards.

    Raises:
        EngineError: The caller is not root, or docker is not installed.
    """
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        raise EngineError(
            f"a docker service for this run alone needs root and the commands {', '.join(_NEEDED)}"
        )
    with tempfile.TemporaryDirectory(prefix="shuffledp-docker-") as folder:
        home = Path(folder)
        daemon = _start(home)
        try:
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("DOCKER_HOST", f"unix://{home}/socket")
                yield _wait(daemon, home)
        finally:
            _stop(daemon)


def _start(home: Path) -> subprocess.Popen[bytes]:
    options = [
        f"--data-root={home}/data",
        f"--exec-root={home}/exec",
        f"--pidfile={home}/pid",
        f"--host=unix://{home}/socket",
    ]
    begin = 'ip link set lo up; exec dockerd "$@"'
    with (home / "log").open("wb") as log:
        return subprocess.Popen(  # constant arguments
            ["unshare", "--net", "--mount", "sh", "-c", begin, "dockerd", *options],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt reaches only the tests, which stop it in order
        )


def _wait(daemon: subprocess.Popen[bytes], home: Path) -> Engine:
    give_up = time.monotonic() + _START_SECONDS
    while True:
        if (home / "socket").exists():
            try:
                return Engine.find()
            except EngineStoppedError:
                if time.monotonic() > give_up:
                    raise
        if daemon.poll() is not None or time.monotonic() > give_up:
            said = (home / "log").read_text(encoding="utf-8", errors="replace").splitlines()
            raise EngineError("dockerd does not start:\n" + "\n".join(said[-_SHOWN:]))
        time.sleep(_POLL_SECONDS)


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    """Stop it and its containers, which ends its namespaces."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
