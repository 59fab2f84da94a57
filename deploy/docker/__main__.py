"""Run as `python -m deploy.docker images | up | down`: what `make images`, `up` and `down` do."""

import argparse
import os
import sys
from typing import Final

from common.errors import ShuffleDpError
from deploy.docker.deployment import COMPOSE_FILE, Deployment
from deploy.docker.engine import Engine
from deploy.docker.images import Base, build

_FOLDER: Final = COMPOSE_FILE.parent
_TAG: Final = "local"
_PROJECT: Final = "shuffledp"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _deployment(engine: Engine) -> Deployment:
    return Deployment(
        engine=engine,
        project=_PROJECT,
        tag=_TAG,
        secrets=_FOLDER / "secrets",
        variables_file=_FOLDER / ".env",
    )


def _images(engine: Engine) -> None:
    base = Base.choose(engine, _say)
    from_host = base.is_stand_in or os.environ.get("SHUFFLEDP_WHEELS") == "1"
    build(engine, base, _TAG, _say, from_host=from_host)


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
        "Stopped. Keys are in deploy/secrets, state is in the volumes "
        f"{_PROJECT}_analyzer-state, {_PROJECT}_shuffler-state and {_PROJECT}_user-agent-state:\n"
        "`make up` goes on with both. To destroy what was collected and the ledger with it:\n"
        f"  {' '.join(engine.compose)} --file deploy/compose.yaml down --volumes"
    )


def main() -> None:
    """Do what was asked for; a foreseen failure is said plainly, with exit status 1."""
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
