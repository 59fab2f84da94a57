"""
Run commands of `shuffledp`, here or each in its own process, and fork the workers of services.

Processes are forked from one that has loaded the command, because loading takes seconds.
"""

import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from shuffledp.common.crypto.hpke_pool import _end_with_parent
from shuffledp.deploy.cli import app

_PATIENCE: Final = 120.0
_LOADED_LATER: Final = (
    "shuffledp.deploy.clients.issuer",
    "shuffledp.deploy.demo",
    "shuffledp.deploy.load.run",
    "shuffledp.deploy.pages.live_server",
    "shuffledp.deploy.pages.series_page",
    "shuffledp.lab.planning.planner",
    "shuffledp.deploy.results.export",
    "shuffledp.deploy.sentinels.planting",
    "shuffledp.lab.simulate.sweep",
)
"""What the bodies of commands load, with what that loads in turn."""


def shown(command: str, *more: str) -> str:
    """
    Run a command in this process; raise what it raises, or return what it prints.

    `command` is split at spaces; further words are not.
    """
    outcome = CliRunner().invoke(app, [*command.split(), *more], catch_exceptions=False)
    assert 0 == outcome.exit_code, outcome.output
    return outcome.stdout


def shown_json(command: str, *more: str) -> Any:
    """Run a command in this process with --json, and return what it prints."""
    return json.loads(shown(command, *more, "--json"))


@cache
def _loaded() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shuffledp.deploy.cli", *_LOADED_LATER])
    return context


def forking(processes: int) -> ProcessPoolExecutor:
    """Return a pool like those of services, with forked workers."""
    return ProcessPoolExecutor(processes, _loaded(), initializer=_end_with_parent)


def _main(
    arguments: tuple[str, ...],
    printed: str,
    complaint: str | Connection,
    folder: str | Path = ".",
    most: int = resource.RLIM_INFINITY,
) -> None:
    os.chdir(folder)
    errors = os.open(complaint, os.O_WRONLY) if isinstance(complaint, str) else complaint.fileno()
    for number, file in ((1, os.open(printed, os.O_WRONLY)), (2, errors)):
        os.dup2(file, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    sys.argv = ["shuffledp", *arguments]
    from shuffledp.deploy.cli import main  # noqa: PLC0415  # in the child, where it is loaded already

    main()


def run_limited(most: int, folder: Path, *arguments: str) -> tuple[int | None, str]:
    """
    Run a command in a folder, whose files may have at most `most` bytes.

    Return its exit status and standard error. The system names no file that is too large.
    """
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = _loaded().Process(target=_main, args=(arguments, os.devnull, writer, folder, most))
    process.start()
    process.join(_PATIENCE)
    os.write(writer.fileno(), b"\n")  # so that there is something to read
    complaint = os.read(reader.fileno(), 65_536)
    return process.exitcode, complaint.decode().removesuffix("\n")


async def run_command(*arguments: str) -> tuple[int | None, str, str]:
    """Run a command; return its exit status, standard output and standard error."""
    return await asyncio.to_thread(_run, arguments)


def _run(arguments: tuple[str, ...]) -> tuple[int | None, str, str]:
    with tempfile.TemporaryDirectory() as folder:
        printed, complaint = Path(folder) / "printed", Path(folder) / "complaint"
        printed.touch()
        complaint.touch()
        process = _loaded().Process(
            target=_main, args=(arguments, str(printed), str(complaint)), daemon=True
        )
        process.start()
        process.join(_PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
        return (
            process.exitcode,
            printed.read_text(encoding="utf-8"),
            complaint.read_text(encoding="utf-8"),
        )
