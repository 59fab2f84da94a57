"""External programs that tests need."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest


def tool(name: str, path: str = "") -> str:
    """Find a program, or skip the test; with SHUFFLEDP_REQUIRE_TOOLS=1, fail it."""
    found = shutil.which(name) or shutil.which(name, path=path)
    if found is None:
        missing(f"{name} is not installed (Debian: apt install {_PACKAGES.get(name, name)})")
    return found


def missing(sentence: str) -> NoReturn:
    """Skip the test for this reason; with SHUFFLEDP_REQUIRE_TOOLS=1, fail it."""
    if os.environ.get("SHUFFLEDP_REQUIRE_TOOLS") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)


def output_of(name: str, *arguments: str, folder: Path | None = None) -> str:
    """Run a program in a folder, and return all that it writes; fail the test if it fails."""
    command = [tool(name), *arguments]
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = outcome.stdout + outcome.stderr
    assert outcome.returncode == 0, said
    return said


_PACKAGES = {
    "promtool": "prometheus",
    "initdb": "postgresql",
    "pg_ctl": "postgresql",
    "node": "nodejs",
}
"""Debian packages whose name is not the program's."""
