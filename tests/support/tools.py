"""Programs that some tests need beside Python."""

import os
import shutil

import pytest


def tool(name: str) -> str:
    """
    Find a program that a test needs; without it the test is skipped, and fails where
    SHUFFLEDP_REQUIRE_TOOLS is 1.
    """
    found = shutil.which(name)
    if found is None:
        sentence = f"{name} is not installed (Debian: apt install {_PACKAGES.get(name, name)})"
        if os.environ.get("SHUFFLEDP_REQUIRE_TOOLS") == "1":
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


_PACKAGES = {"promtool": "prometheus"}
"""Debian's packages that are not called like their program."""
