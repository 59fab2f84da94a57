"""Builds the four images, from the base that there is."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.docker import wheels
from deploy.docker.engine import Engine, EngineError

ROOT: Final = Path(__file__).parents[2]
MOST_BYTES: Final = 350_000_000
"""The size of an image, at most."""

USUAL_BASE: Final = "python:3.12-slim-bookworm"
"""As in the Dockerfile."""
_STAND_IN: Final = ("shuffledp-base:bookworm", "shuffledp-builder:bookworm")
"""What make_base.sh makes."""
_PULL_SECONDS: Final = 300.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Base:
    """The image that all others stand on, and the one that they are built in."""

    name: str
    builder: str

    @classmethod
    def choose(cls, engine: Engine, say: Say) -> "Base":
        """
        Take what SHUFFLEDP_BASE names, or the usual one, or else a stand-in made on this machine.

        Raises:
            EngineError: There is none, and none can be made here.
        """
        if named := os.environ.get("SHUFFLEDP_BASE"):
            return cls(named, os.environ.get("SHUFFLEDP_BUILDER") or named)
        if engine.has_image(USUAL_BASE):
            return cls(USUAL_BASE, USUAL_BASE)
        if all(engine.has_image(name) for name in _STAND_IN):
            say(f"{USUAL_BASE} is not here; the stand-in is")
            return cls(*_STAND_IN)
        say(f"pulling {USUAL_BASE}")
        if engine.run("pull", USUAL_BASE, seconds=_PULL_SECONDS, check=False).returncode == 0:
            return cls(USUAL_BASE, USUAL_BASE)
        say("no registry has it for this machine: deploy/docker/make_base.sh makes a stand-in")
        _make_stand_in(engine)
        return cls(*_STAND_IN)

    @property
    def is_stand_in(self) -> bool:
        """It was made here."""
        return (self.name, self.builder) == _STAND_IN

    def target(self, engine: Engine) -> wheels.Target:
        """Ask its Python what it is."""
        said = engine.say(
            "run", "--rm", "--network", "none", self.name, "python3", "-c", wheels.ASK_PYTHON
        )
        return wheels.Target(**json.loads(said))


def _make_stand_in(engine: Engine) -> None:
    script = str(Path(__file__).with_name("make_base.sh"))
    outcome = subprocess.run(  # noqa: S603  # our own script
        [script],
        env={**os.environ, **engine.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if outcome.returncode:
        raise EngineError(f"no base image can be made here: {outcome.stderr.strip()}")


def build(engine: Engine, base: Base, tag: str, say: Say, *, from_host: bool) -> None:
    """
    Build all four.

    Args:
        engine: Of this machine.
        base: What they stand on.
        tag: Of the images: shuffledp-PARTY:TAG.
        say: Told what is done.
        from_host: Download packages here, with this machine's own pip, and build without network.

    Raises:
        EngineError: A build failed.
        SettingsError: pip did not find a package.
    """
    options: list[str] = []
    if from_host:
        before = time.monotonic()
        count = wheels.download(base.target(engine))
        say(f"{count} packages downloaded in {time.monotonic() - before:.0f} s")
        options = ["--network=none"]
        options += ["--build-arg=PACKAGES_FROM=--no-index --find-links /build/wheels"]
    for image in wheels.IMAGES:
        before = time.monotonic()
        build_one(engine, base, image, f"shuffledp-{image}:{tag}", options)
        size = image_bytes(engine, f"shuffledp-{image}:{tag}")
        say(f"{image}: {size / 1e6:.0f} MB, built in {time.monotonic() - before:.0f} s")


def build_one(
    engine: Engine, base: Base, image: str, name: str, options: list[str] | None = None
) -> None:
    """Build one target of the Dockerfile under a name. Raises EngineError."""
    engine.run(
        "build",
        *(options or []),
        f"--file={ROOT / 'deploy' / 'docker' / 'Dockerfile'}",
        f"--build-arg=BASE={base.name}",
        f"--build-arg=BUILDER={base.builder}",
        f"--target={image}",
        f"--tag={name}",
        str(ROOT),
    )


def image_bytes(engine: Engine, name: str) -> int:
    """Give the size of an image, uncompressed, its base included."""
    return int(engine.say("image", "inspect", "--format", "{{.Size}}", name))
