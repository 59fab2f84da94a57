"""External programs that tests need."""

import os
import shutil

import pytest


def tool(name: str, path: str = "") -> str:
    """Find a program, or skip the test; with SHUFFLEDP_REQUIRE_TOOLS=1, fail it."""
    found = shutil.which(name) or shutil.which(name, path=path)
    if found is None:
        sentence = f"{name} is not installed (Debian: apt install {_PACKAGES.get(name, name)})"
        if os.environ.get("SHUFFLEDP_REQUIRE_TOOLS") == "1":
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


_PACKAGES = {"promtool": "prometheus", "initdb": "postgresql", "pg_ctl": "postgresql"}
"""Debian packages whose name is not the program's."""
