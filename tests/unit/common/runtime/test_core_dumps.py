import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

_SERVICE = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.service import main
from shuffledp.witness.settings import WitnessSettings

async def start(settings):
    print(open("/proc/self/limits").read(), flush=True)
    subprocess.run(["cat", "/proc/self/limits"], check=True)
    raise SettingsError("seen")

main("witness", WitnessSettings, start)
"""
_WORKER = """
import resource, subprocess
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
from shuffledp.common.runtime.parts.jobs import PartRunner
from shuffledp.common.errors import SettingsError
from shuffledp.analyzer.settings import AnalyzerSettings

settings = AnalyzerSettings(
    state_directory=Path("state"), listen="unix:none", plaintext=True, role="worker",
    coordinator="127.0.0.1:1", internal_tls_directory=Path("internal"), blocks="file:///tmp",
)
try:
    PartRunner.of(settings, (), {})
except SettingsError:
    pass
print(open("/proc/self/limits").read(), flush=True)
subprocess.run(["cat", "/proc/self/limits"], check=True)
"""


@pytest.mark.parametrize("program", [_SERVICE, _WORKER], ids=["service", "worker of an engine"])
def test_no_process_that_holds_keys_dumps_core(tmp_path: Path, program: str) -> None:
    """Neither it nor a process that it starts, whatever the host allows."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("this machine allows no core dumps at all")
    environment = {
        **os.environ,
        "GRPC_VERBOSITY": "NONE",
        "PYTHONPATH": str(Path(__file__).parents[4]),
        "SHUFFLEDP_WITNESS_STATE_DIRECTORY": str(tmp_path / "state"),
        "SHUFFLEDP_WITNESS_LISTEN": "127.0.0.1:0",
        "SHUFFLEDP_WITNESS_PLAINTEXT": "true",
        "SHUFFLEDP_WITNESS_ANALYZER_IDENTITY": "00" * 32,
    }
    environment.pop("GRPC_TRACE", None)
    found = subprocess.run(
        (sys.executable, "-c", program),
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    limits = re.findall(r"Max core file size +(\d+|unlimited) +(\d+|unlimited)", found.stdout)

    assert [("0", "0")] * 2 == limits, found.stderr
