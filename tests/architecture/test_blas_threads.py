"""Every entry point limits BLAS to one thread before numpy is loaded."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import importlib, sys
importlib.import_module(sys.argv[1])
import numpy, threadpoolctl
print(*{each["num_threads"] for each in threadpoolctl.threadpool_info()})
"""


@pytest.mark.parametrize(
    "entry",
    [
        "analyzer.__main__",
        "deploy.cli",
        "lab.simulate.sweep",
        "issuer.__main__",
        "publisher.__main__",
        "shuffler.__main__",
        "user_agent.__main__",
        "witness.__main__",
    ],
)
def test_an_entry_point_runs_blas_in_one_thread(entry: str) -> None:
    """
    Where the environment asks for two threads by no variable, one is started.

    OpenBLAS reads its variable when numpy loads it, so a limit that comes later has no effect.
    """
    environment = {name: value for name, value in os.environ.items() if "_THREADS" not in name}

    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM, entry],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "1" == found.stdout.strip()
