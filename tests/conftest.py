"""Settings of all tests."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from tests.support.command_line import forking

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # pytest's folders in it are private
_ROOM: Final = 4 << 30
"""Bytes that must be free there."""

if "PYTEST_XDIST_WORKER" in os.environ:
    gc.disable()  # while tests are collected, which live to the end

settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")

# Stores sync each commit; in memory, where there is room, that takes no time.
_HAS_ROOM: Final = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
if _HAS_ROOM and "TMPDIR" not in os.environ:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three workers for two cores: tests wait for a fifth of their time."""
    return (os.cpu_count() or 1) * 3 // 2


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Fork the workers of services, which start for each batch and load a second's modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shuffledp.common.crypto.hpke_pool._spawning", forking)
        yield


def pytest_collection_finish() -> None:
    """Exempt tests from garbage collection, each of which looks at them for half a second."""
    gc.freeze()
    gc.enable()
