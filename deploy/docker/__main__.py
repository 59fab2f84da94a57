"""Build images, or start or stop the services. Run by `make images`, `make up` and `make down`."""

import argparse
import os
import shlex
import sys
import time
from typing import Final

from shuffledp.common.errors import ShuffleDpError
from shuffledp.deploy.docker.deployment import IMAGES, SCALE_IMAGES, VARIANTS, Deployment, Engine
from shuffledp.deploy.terminal.interruption import INTERRUPTED

DEFAULT_BASE: Final = "python:3.12-slim-bookworm"


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _images(deployment: Deployment) -> None:
    engine = deployment.engine
    base = os.environ.get("SHUFFLEDP_BASE") or DEFAULT_BASE
    builder = os.environ.get("SHUFFLEDP_BUILDER") or base
    options = shlex.split(os.environ.get("SHUFFLEDP_BUILD") or "")
    for image in (*IMAGES, *SCALE_IMAGES) if deployment.variant == "scale" else IMAGES:
        started = time.monotonic()
        engine.build(image, f"shuffledp-{image}:{deployment.tag}", base, builder, *options)
        _print(f"{image}: built on {base} in {time.monotonic() - started:.0f} s")


def _up(deployment: Deployment) -> None:
    _images(deployment)
    _print("preparing keys and identities in deploy/secrets")
    renewed = deployment.prepare()
    _print("starting the services")
    deployment.start(again=renewed)
    files = (f"--file deploy/{name}" for name in VARIANTS[deployment.variant][0])
    compose = " ".join([*deployment.engine.compose, *files])
    page = f"""To answer in a browser on this machine, open the address that this prints:

  {compose} run --rm loadgen issuer invite DIGEST --person anna \\
      --credentials /run/secrets/anna.txt --page http://127.0.0.1:7004

"""
    draft, more, relayed = "cities", "", ""
    if deployment.variant == "two-shufflers":
        draft, more = "two-shufflers", " --relay-key /files/relay.pub"
        relayed = f"""  {compose} exec -T relay cat /var/lib/shuffledp/state/relay.pub | \\
      {compose} run --rm -T --entrypoint tee operator /files/relay.pub
"""
    _print(
        f"""All services are healthy. Next, from this folder:

  {compose} ps
  {compose} run --rm operator issuer new-key --end 2030-01-31T12:00:00 \\
      --output /files/token-key.json
{relayed}  {compose} run --rm operator task create /drafts/{draft}.toml \\
      --token-key /files/token-key.json{more}

{"" if deployment.variant == "scale" else page}`make down` stops them."""
    )


def _down(deployment: Deployment) -> None:
    deployment.stop()
    _print(
        "Stopped. Keys stay in deploy/secrets, and state in the volumes: `make up` continues with "
        "both. To destroy collected data and the ledger:\n"
        f"  {' '.join(deployment.engine.compose)} --file deploy/compose.scale.yaml down --volumes"
    )


def main() -> None:
    """Run a command; print an expected error and exit with status 1."""
    commands = {"images": _images, "up": _up, "down": _down}
    parser = argparse.ArgumentParser(
        prog="python -m shuffledp.deploy.docker", description="Run the services in containers."
    )
    parser.add_argument("command", choices=commands)
    for variant in filter(None, VARIANTS):
        parser.add_argument(f"--{variant}", dest="variant", action="store_const", const=variant)
    given = parser.parse_args()
    try:
        commands[given.command](Deployment(engine=Engine.find(), variant=given.variant or ""))
    except ShuffleDpError as error:
        sys.exit(f"shuffledp: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
