"""Node, and the packages of the device in TypeScript."""

import fcntl
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.source_tree import ROOT
from tests.support.tools import missing, output_of, tool

WEB: Final = ROOT / "user_agent" / "web"
_LEAST_VERSION: Final = 20
_INSTALLED: Final = WEB / "node_modules" / ".package-lock.json"


def node(*arguments: str | Path) -> str:
    """Run a program of Node in user_agent/web, and return all that it writes."""
    _check_version()
    return output_of("node", *map(str, arguments), folder=WEB)


def install() -> None:
    """Install the packages of user_agent/web, unless they are those of the lock file."""
    _check_version()
    npm, lock_file = tool("npm"), WEB / "package-lock.json"
    with lock_file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of other workers
        if _INSTALLED.exists() and _INSTALLED.stat().st_mtime >= lock_file.stat().st_mtime:
            return
        outcome = subprocess.run([npm, "ci"], cwd=WEB, capture_output=True, check=False)
    if outcome.returncode != 0:
        missing("npm ci cannot install the packages of user_agent/web (is a registry reachable?)")


@cache
def _check_version() -> None:
    version = output_of("node", "--version").strip()
    if int(version.removeprefix("v").split(".")[0]) < _LEAST_VERSION:
        missing(f"node is {version}; the device in TypeScript needs {_LEAST_VERSION} or newer")
