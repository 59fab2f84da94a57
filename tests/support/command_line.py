"""
Run commands of `shuffledp`, each in its own process.

Processes are forked from one that has loaded the command, because loading takes seconds.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Final

_PATIENCE: Final = 120.0
_LOADED_LATER: Final = (
    "deploy.clients.people",
    "deploy.demo",
    "deploy.load.run",
    "deploy.pages.live_server",
    "deploy.pages.series_page",
    "deploy.planning.planner",
    "deploy.results.export",
    "deploy.sentinels.planting",
    "deploy.simulate.sweep",
)
"""What the bodies of commands load, with what that loads in turn."""


@cache
def _loaded() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deploy.cli", *_LOADED_LATER])
    return context


def _main(arguments: tuple[str, ...], printed: str, complaint: str) -> None:
    for number, path in ((1, printed), (2, complaint)):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.argv = ["shuffledp", *arguments]
    from deploy.cli import main  # noqa: PLC0415  # in the child, where it is loaded already

    main()


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
