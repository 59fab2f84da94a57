"""Build, start, inspect, kill and load the services in containers."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shuffledp.deploy.docker.__main__ import DEFAULT_BASE
from shuffledp.deploy.docker.deployment import (
    IMAGES,
    Deployment,
    Engine,
    EngineError,
    EngineStoppedError,
)
from tests.containers.private_engine import private_engine
from tests.containers.wheels import OFFLINE, download

TAG: Final = "test"
PROJECT: Final = "shuffledp-test"
AUTHORITY: Final = "/run/secrets/authority.pem"
DATASET: Final = "ipums1940_city"
ITEMS: Final = 915

_HERE: Final = Path(__file__).parents[1] / "containers"
_MADE: Final = ("shuffledp-base:bookworm", "shuffledp-builder:bookworm")
"""The images that make_base.sh builds."""
_STARTED: Final = time.monotonic()


def say(line: str) -> None:
    """Print a line with the elapsed time."""
    sys.stdout.write(f"[{time.monotonic() - _STARTED:4.0f} s] {line}\n")
    sys.stdout.flush()


@contextmanager
def engine_of_this_machine() -> Iterator[Engine]:
    """
    Yield the running engine, or start one for this run only.

    Raises:
        EngineError: None runs, and none can be started.
    """
    with ExitStack() as held:
        try:
            engine = Engine.find()
        except EngineStoppedError as error:
            try:
                engine = held.enter_context(private_engine())
            except EngineError as other:
                raise EngineError(f"{error} Or else: {other}") from None
            say("no engine answers: one is started for this run alone")
        yield engine


@dataclass(frozen=True, slots=True)
class Images:
    """The images under test."""

    engine: Engine
    base: str
    builder: str

    @classmethod
    def built(cls, engine: Engine) -> "Images":
        """Build them, without a network, from packages that this machine downloads."""
        base = os.environ.get("SHUFFLEDP_BASE") or DEFAULT_BASE
        images = cls(engine, base, os.environ.get("SHUFFLEDP_BUILDER") or base)
        here = engine.run("image", "inspect", base, check=False).returncode == 0
        if not here and engine.run("pull", base, check=False).returncode:
            say(f"{base} cannot be pulled: a Debian base is built instead")
            subprocess.run([_HERE / "make_base.sh"], check=True)
            images = cls(engine, *_MADE)
        say(f"the base is {images.base}")
        download(engine, images.base)
        for image in IMAGES:
            images.build(image, f"shuffledp-{image}:{TAG}")
            say(f"{image} is built")
        return images

    def build(self, image: str, name: str, *options: str) -> None:
        """Build one image under a name."""
        self.engine.build(image, name, self.base, self.builder, *OFFLINE, *options)

    def python(self, image: str, program: str) -> Any:
        """Run a program in a new container of an image, and read the JSON that it prints."""
        return json.loads(self.engine.output(*self._bare(f"shuffledp-{image}:{TAG}", program)))

    def _bare(self, name: str, program: str) -> tuple[str, ...]:
        return ("run", "--rm", "--network=none", "--entrypoint=python3", name, "-c", program)

    def files(self, name: str) -> dict[str, str]:
        """Return the mode and hash of every path that an image adds to its base."""
        program = (
            "import hashlib, json, os\n"
            "found = {}\n"
            "for top in ('/app', '/venv', '/bytecode'):\n"
            "    for folder, _, names in os.walk(top):\n"
            "        for path in [folder, *(os.path.join(folder, name) for name in names)]:\n"
            "            mode = oct(os.lstat(path).st_mode)\n"
            "            if os.path.islink(path): what = os.readlink(path)\n"
            "            elif os.path.isdir(path): what = ''\n"
            "            else: what = hashlib.sha256(open(path, 'rb').read()).hexdigest()\n"
            "            found[path] = mode + ' ' + what\n"
            "print(json.dumps(found))"
        )
        found: dict[str, str] = json.loads(self.engine.output(*self._bare(name, program)))
        return found


@contextmanager
def deployed(images: Images, folder: Path) -> Iterator[Deployment]:
    """Start the services with new keys; remove everything afterwards."""
    deployment = Deployment(
        engine=images.engine,
        project=PROJECT,
        tag=TAG,
        secrets=folder / "secrets",
        variables_file=folder / "variables.env",
    )
    deployment.compose("down", "--remove-orphans", "--volumes")  # of an interrupted run
    try:
        deployment.prepare()
        say("keys and identities are created")
        deployment.start()
        say("all services are healthy")
        yield deployment
    finally:
        deployment.compose("down", "--remove-orphans", "--volumes")
        _remove_secrets(images.engine, deployment.secrets)


def _remove_secrets(engine: Engine, secrets: Path) -> None:
    """Remove secrets by the engine: they belong to the services' user."""
    engine.run(
        *("run", "--rm", "--network=none", "--user=0:0", "--entrypoint=sh"),
        *(f"--volume={secrets}:/secrets", f"shuffledp-operator:{TAG}", "-c", "rm -rf /secrets/*"),
    )


def inside(deployment: Deployment, service: str, program: str) -> Any:
    """Run a program in a service's container, and read the JSON that it prints."""
    container = deployment.container(service)
    return json.loads(deployment.engine.output("exec", container, "python3", "-c", program))


def inspect(deployment: Deployment, service: str) -> dict[str, Any]:
    """Return the engine's description of a service's container."""
    container = deployment.container(service)
    found: list[dict[str, Any]] = json.loads(deployment.engine.output("inspect", container))
    return found[0]


def kill(deployment: Deployment, service: str) -> None:
    """
    Kill a service's process as a crash would.

    The engine would not restart a container that it killed itself, and a container cannot kill its
    own first process: another container with the host's processes does.
    """
    process = inspect(deployment, service)["State"]["Pid"]
    deployment.engine.run(
        *("run", "--rm", "--network=none", "--pid=host", "--user=0:0", "--cap-drop=ALL"),
        *("--cap-add=KILL", "--entrypoint=python3", f"shuffledp-operator:{TAG}"),
        *("-c", f"import os; os.kill({process}, 9)"),
    )
    say(f"the {service} is killed")


def operator(deployment: Deployment, *arguments: str, check: bool = True) -> Any:
    """Run an operator's command, and parse its JSON output; None if it fails unchecked."""
    outcome = deployment.compose(*("run", "--rm", "-T", "operator", *arguments), check=check)
    return json.loads(outcome.stdout) if outcome.returncode == 0 else None


def make_token_key(deployment: Deployment, end: str) -> str:
    """Create a task's token key, as the issuer's operator; return its file there."""
    file = "/files/token-key.json"
    deployment.compose(
        *("run", "--rm", "-T", "operator", "issuer", "new-key", "--end", end, "--output", file)
    )
    return file


def fetch_tokens(deployment: Deployment, digest: str, *counts: int) -> list[str]:
    """Get a token for each simulated person; return files with these numbers of tokens."""
    deployment.compose(
        *("run", "--rm", "-T", "loadgen", "issuer", "tokens", digest),
        *("--credentials", "/run/secrets/credentials.txt", "--output", "/files/tokens.txt"),
    )
    program = (
        "import json, pathlib\n"
        "lines = iter(pathlib.Path('/files/tokens.txt').read_text().splitlines())\n"
        f"files = {{f'/files/tokens-{{n}}.txt': n for n in {counts}}}\n"
        "for name, count in files.items():\n"
        "    pathlib.Path(name).write_text(''.join(next(lines) + '\\n' for _ in range(count)))\n"
        "assert next(lines, None) is None\n"
        "print(json.dumps([*files]))"
    )
    found: list[str] = _in_loadgen(deployment, "-c", program)
    return found


def submit_users(
    deployment: Deployment, digest: str, users: int, seed: int, tokens: str
) -> dict[str, Any]:
    """Submit for users by the load generator, each until acknowledged; return its report."""
    shipped = (_HERE.parents[1] / "deploy" / "load" / "scenarios" / "containers.toml").read_text()
    own = f"people = {{dataset = '{DATASET}', seed = {seed}}}\nsending.concurrency = 4\n{shipped}"
    program = f"import pathlib; print(pathlib.Path('/files/mine.toml').write_text({own!r}))"
    _in_loadgen(deployment, "-c", program)
    outcome = deployment.compose(
        *("run", "--rm", "-T", "loadgen", "load", "/files/mine.toml", digest),
        *("--tokens", tokens, "--users", str(users), "--json"),
    )
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def values_of_users(deployment: Deployment, users: int, seed: int) -> list[int]:
    """Count the values that the load generator draws for its users."""
    program = (
        "import json\n"
        "import numpy as np\n"
        "from shuffledp.deploy.datasets.sources import dataset\n"
        "from shuffledp.deploy.load.behaviour import LoadPlan\n"
        f"rng = np.random.default_rng({seed})\n"
        f"LoadPlan(n_users={users}).draw_kinds(rng)\n"
        f"values = dataset('{DATASET}', {users}).draw({users}, rng)\n"
        f"print(json.dumps(np.bincount(values, minlength={ITEMS}).tolist()))"
    )
    found: list[int] = _in_loadgen(deployment, "-c", program)
    return found


def contribute_person(deployment: Deployment, digest: str, person: str, value: int) -> bool:
    """Contribute through the user agent; return whether it already had the person's answer."""
    socket = "unix:/run/shuffledp/user_agent.sock"
    script = (_HERE / "contribute_person.py").read_text(encoding="utf-8")
    found: bool = _in_loadgen(deployment, "-", socket, digest, person, str(value), text=script)
    return found


def _in_loadgen(deployment: Deployment, *arguments: str, text: str = "") -> Any:
    """Run Python in the load generator's container, and parse its JSON output."""
    outcome = deployment.compose(
        *("run", "--rm", "-T", "--entrypoint", "python3", "loadgen", *arguments), text=text
    )
    return json.loads(outcome.stdout)
