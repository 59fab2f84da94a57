"""Services whose wall clock a test sets, by libfaketime."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from shuffledp.common.runtime.service import GRPC_SILENCE
from tests.support.tools import tool


class FakedTime:
    """
    The wall clock of all processes with `environment`.

    The clock that counts from the boot stays as it is: by default libfaketime moves it too, which
    no wrong setting of a clock does.
    """

    def __init__(self, folder: Path) -> None:
        """Skip the test if faketime is not installed."""
        command = (tool("faketime"), "-m", "-f", "+0", "printenv", "LD_PRELOAD")
        library = subprocess.run(command, check=True, capture_output=True, text=True)
        self._file = folder / "faked-time"
        self.shift(0)
        self.environment: Mapping[str, str] = {
            **GRPC_SILENCE,
            "LD_PRELOAD": library.stdout.strip(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def shift(self, seconds: int) -> None:
        """Set the wall clock to this many seconds after the right time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}", encoding="ascii")
        new.replace(self._file)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command of `shuffledp` by this clock; return status, output and error output."""
        start = "from shuffledp.deploy.cli import main; main()"
        command = (sys.executable, "-c", start, *arguments)
        found = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
        )
        return found.returncode, found.stdout, found.stderr
