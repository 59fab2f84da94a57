"""`make images`: the options that reach `docker build`; the publisher in what its image holds."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import load_witness_key
from shuffledp.deploy.docker.deployment import IMAGES

_ROOT = Path(__file__).parents[4]


def test_options_of_docker_build_reach_every_image(tmp_path: Path) -> None:
    """Split as a shell splits words, since a build argument may hold spaces; before the root."""
    docker, log = tmp_path / "docker", tmp_path / "log"
    docker.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\n', encoding="ascii")
    docker.chmod(0o755)
    options = '--build-arg https_proxy --build-arg "PACKAGES_FROM=--no-index --find-links /w"'

    subprocess.run(
        [sys.executable, "-m", "shuffledp.deploy.docker", "images"],
        cwd=_ROOT,
        env={**os.environ, "PATH": str(tmp_path), "SHUFFLEDP_BUILD": options},
        check=True,
    )

    words = log.read_text(encoding="utf-8").splitlines()
    assert len(IMAGES) == words.count("https_proxy")
    assert len(IMAGES) == words.count("PACKAGES_FROM=--no-index --find-links /w")
    assert len(IMAGES) == words.count(str(_ROOT))


def test_the_publisher_serves_its_page_from_what_its_image_holds(tmp_path: Path) -> None:
    """With the settings of containers; the image's own check finds it, and finds its end."""
    text = (_ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    stage = text.partition("\nFROM party AS publisher\n")[2].partition("\nFROM")[0]
    app, state = tmp_path / "app", tmp_path / "state"
    for source, target in re.findall(r"(?m)^COPY --from=code /app/(\S+) /app/(\S+)$", stage):
        for path in _ROOT.glob(source):
            place = app / target / (path.name if target.endswith("/") else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.absolute())
    [check] = re.findall(r"HEALTHCHECK.*\n +CMD (\[.*\])\n", stage)
    _, *arguments = json.loads(check.replace("/var/lib/shuffledp/state", str(state)))

    with subprocess.Popen(
        [
            *(sys.executable, "-c", _RUN, str(app), "--settings"),
            str(_ROOT / "deploy" / "settings" / "publisher.toml"),
        ],
        cwd=app,
        env={**os.environ, **_pins(tmp_path), "SHUFFLEDP_PUBLISHER_STATE_DIRECTORY": str(state)},
    ) as process:
        give_up = time.monotonic() + 20
        while not (state / "address").exists():
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.02)
        port = (state / "address").read_text(encoding="ascii").rpartition(":")[2]
        with urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
            assert b"integrity" in page.read()
        assert 0 == subprocess.run([sys.executable, *arguments], check=False).returncode
        process.terminate()
    assert 0 == process.returncode
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    assert b"refused" in ended.stderr


_RUN = """
import os, runpy, sys
app = sys.argv.pop(1)
sys.path[:] = [app, *(path for path in sys.path if not os.path.isdir(path + "/shuffledp"))]
runpy.run_module("shuffledp.publisher", run_name="__main__", alter_sys=True)
"""


def _pins(folder: Path) -> dict[str, str]:
    """Return the variables that `make up` sets, with a free port of this machine."""
    witness = load_witness_key(StateDirectory.open(folder / "witness"), "witness")[1].to_text()
    pins = {
        f"{party}_IDENTITY": SigningIdentity.generate().public_identity().raw.hex()
        for party in ("ANALYZER", "SHUFFLER", "ISSUER")
    }
    pins |= {"WITNESSES": json.dumps([witness]), "LISTEN": "127.0.0.1:0"}
    return {f"SHUFFLEDP_PUBLISHER_{name}": value for name, value in pins.items()}
