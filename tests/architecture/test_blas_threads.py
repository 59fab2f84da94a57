"""Every entry point limits BLAS to one thread before numpy is loaded."""

import os
import subprocess
import sys

_ENTRIES = (
    "shuffledp.analyzer.__main__",
    "shuffledp.deploy.cli",
    "shuffledp.lab.simulate.sweep",
    "shuffledp.issuer.__main__",
    "shuffledp.publisher.__main__",
    "shuffledp.shuffler.__main__",
    "shuffledp.user_agent.__main__",
    "shuffledp.witness.__main__",
    "shuffledp.witness.checking.check_process",
)
_FIRST = """
import importlib, os, sys
import cryptography.x509, google.protobuf.message, grpc.aio, prometheus_client, pydantic

class Stop:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_NUM_THREADS"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Stop())
for entry in sys.argv[1:]:
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        importlib.import_module(entry)
        import numpy
"""
"""
Imports each entry point in a process of its own, until it would load numpy.

Each has the libraries that many need, and that do not load numpy.
"""
_PROGRAM = """
import importlib, sys
importlib.import_module(sys.argv[1])
import numpy, threadpoolctl
print(*{each["num_threads"] for each in threadpoolctl.threadpool_info()})
"""


def _printed(program: str, *arguments: str) -> list[str]:
    """Run a program where no variable limits threads; return the lines that it prints."""
    found = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={name: value for name, value in os.environ.items() if "_THREADS" not in name},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.splitlines()


def test_every_entry_point_sets_the_variable_before_numpy_is_loaded() -> None:
    """OpenBLAS reads it then; what it does with it is tested below."""
    assert ["1"] * len(_ENTRIES) == _printed(_FIRST, *_ENTRIES)


def test_a_program_runs_blas_in_one_thread() -> None:
    """
    Where the environment asks for two threads by no variable, one is started.

    OpenBLAS reads its variable when numpy loads it, so a limit that comes later has no effect.
    """
    assert ["1"] == _printed(_PROGRAM, "shuffledp.user_agent.__main__")
