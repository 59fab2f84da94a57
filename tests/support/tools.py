"""Programs that some tests need and that no package index has."""

import os
import shutil
from typing import Final

import pytest

_PACKAGES: Final = {"promtool": "prometheus", "chromium": "chromium"}


def tool(name: str) -> str:
    """Find a program that a test needs; without it the test is skipped, and fails where SHUFFLEDP_REQUIRE_TOOLS is 1."""  # noqa: E501
    found = shutil.which(name)
    if found is not None:
        return found
    sentence = f"{name} is not installed (Debian: apt install {_PACKAGES[name]})"
    if os.environ.get("SHUFFLEDP_REQUIRE_TOOLS") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)
