"""`make images`: the options that reach `docker build`."""

import os
import subprocess
import sys
from pathlib import Path

from deploy.docker.engine import IMAGES

_ROOT = Path(__file__).parents[4]


def test_options_of_docker_build_reach_every_image(tmp_path: Path) -> None:
    """They are split as a shell splits words, so that a build argument may hold spaces."""
    docker, log = tmp_path / "docker", tmp_path / "log"
    docker.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\n', encoding="ascii")
    docker.chmod(0o755)
    options = '--build-arg https_proxy --build-arg "PACKAGES_FROM=--no-index --find-links /w"'

    subprocess.run(
        [sys.executable, "-m", "deploy.docker", "images"],
        cwd=_ROOT,
        env={**os.environ, "PATH": str(tmp_path), "SHUFFLEDP_BUILD": options},
        check=True,
    )

    words = log.read_text(encoding="utf-8").splitlines()
    assert len(IMAGES) == words.count("https_proxy")
    assert len(IMAGES) == words.count("PACKAGES_FROM=--no-index --find-links /w")
