"""Run as `python -m deploy.docker images | up | down`: `make images`, `make up`, `make down`."""

import argparse
import os
import sys
import time
from typing import Final

from common.errors import ShuffleDpError
from deploy.docker.deployment import COMPOSE_FILE, Deployment
from deploy.docker.engine import IMAGES, Engine

USUAL_BASE: Final = "python:3.12-slim-bookworm"
"""As in the Dockerfile."""
_TAG: Final = "local"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _deployment(engine: Engine) -> Deployment:
    folder = COMPOSE_FILE.parent
    return Deployment(
        engine=engine,
        project="shuffledp",
        tag=_TAG,
        secrets=folder / "secrets",
        variables_file=folder / ".env",
    )


def _images(engine: Engine) -> None:
    base = os.environ.get("SHUFFLEDP_BASE") or USUAL_BASE
    builder = os.environ.get("SHUFFLEDP_BUILDER") or base
    for image in IMAGES:
        started = time.monotonic()
        engine.build(image, f"shuffledp-{image}:{_TAG}", base, builder)
        _say(f"{image}: built on {base} in {time.monotonic() - started:.0f} s")


def _up(engine: Engine) -> None:
    _images(engine)
    deployment = _deployment(engine)
    _say("preparing keys and identities in deploy/secrets")
    deployment.prepare()
    _say("starting analyzer, shuffler and user agent")
    deployment.start()
    compose = f"{' '.join(engine.compose)} --file deploy/compose.yaml"
    _say(
        f"""All three are healthy. Next, from this folder:

  {compose} ps
  {compose} run --rm operator task create /drafts/cities.toml \\
      --analyzer analyzer:7001 --token-file /run/secrets/analyzer.token \\
      --authority /run/secrets/authority.pem --shuffler-key /state/shuffler/state/envelope.pub

`make down` stops them."""
    )


def _down(engine: Engine) -> None:
    _deployment(engine).stop()
    _say(
        "Stopped. Keys stay in deploy/secrets, and state in the volumes: `make up` continues with "
        "both. To destroy collected data and the ledger:\n"
        f"  {' '.join(engine.compose)} --file deploy/compose.yaml down --volumes"
    )


def main() -> None:
    """Run the command; print a foreseen failure, with exit status 1."""
    commands = {"images": _images, "up": _up, "down": _down}
    parser = argparse.ArgumentParser(
        prog="python -m deploy.docker", description="The three services in containers."
    )
    parser.add_argument("command", choices=commands)
    arguments = parser.parse_args()
    try:
        commands[arguments.command](Engine.find())
    except ShuffleDpError as error:
        sys.exit(f"shuffledp: {error}")


if __name__ == "__main__":
    main()
