"""Settings of all tests."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import settings

import common.runtime.blas_threads  # noqa: F401  # before numpy

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # pytest's folders in it are private
_ROOM: Final = 4 << 30
"""Bytes that must be free there."""

settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")

# Stores sync each commit; in memory, where there is room, that takes no time.
_HAS_ROOM: Final = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
if _HAS_ROOM and "TMPDIR" not in os.environ:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
