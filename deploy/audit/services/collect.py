"""One play, in a process of its own, so that everything it writes can be seen; or in this one."""

import asyncio
import contextlib
import dataclasses
import io
import multiprocessing
import os
import pickle
import tempfile
from pathlib import Path
from typing import Final
from unittest import mock

from common.runtime.service import GRPC_SILENCE
from deploy.audit.failure import NotPlayedError, words_of
from deploy.audit.faults.catalogue import now_planted, planted
from deploy.audit.log_lines import LogLines
from deploy.audit.services.plan import Plan
from deploy.audit.services.play import play
from deploy.audit.services.record import Record

_PATIENCE: Final = 400.0
_PATIENCE_EACH: Final = 0.1
"""Seconds that a play may take, and more for each user, before it is given up: longer than one that
waits in vain for every result."""
_RECORD: Final = "record"
_OUTPUT: Final = "output"
_FAILURE: Final = "failure"


def collect(plan: Plan, *, in_child: bool = True) -> Record:
    """
    Play a plan over the three real services, and give what it left.

    Args:
        plan: What is played.
        in_child: In a spawned process whose standard output and error are kept. Otherwise in this
            process, which may have been changed to see what an audit says to it.

    Raises:
        NotPlayedError: The process failed, or did not end; says where, or for how long.

    Cost: see `play`.
    """
    with tempfile.TemporaryDirectory(prefix="audit-") as name:
        folder = Path(name)
        if not in_child:
            return _here(plan, folder)
        process = multiprocessing.get_context("spawn").Process(
            target=_child, args=(plan, folder, now_planted())
        )
        with mock.patch.dict(os.environ, GRPC_SILENCE):
            process.start()
        longest = _PATIENCE + _PATIENCE_EACH * plan.n_users
        process.join(longest)
        if process.is_alive():
            process.kill()
            process.join()
            raise NotPlayedError(f"the services had not come to an end after {longest:.0f} seconds")
        if process.exitcode != 0:
            failure = folder / _FAILURE
            words = failure.read_text() if failure.exists() else f"status {process.exitcode}"
            raise NotPlayedError(f"the process of the services ended with {words}")
        record: Record = pickle.loads((folder / _RECORD).read_bytes())  # noqa: S301  # our own child's
        return dataclasses.replace(record, output=(folder / _OUTPUT).read_bytes())


def _here(plan: Plan, folder: Path) -> Record:
    written, lines = io.StringIO(), LogLines()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written), lines.kept():
        record = asyncio.run(play(plan, folder / "services", lines))
    return dataclasses.replace(record, output=written.getvalue().encode())


def _child(plan: Plan, folder: Path, fault: str) -> None:
    with (folder / _OUTPUT).open("wb") as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    lines = LogLines()
    try:
        with planted(fault), lines.kept():
            record = asyncio.run(play(plan, folder / "services", lines))
    except BaseException as error:
        (folder / _FAILURE).write_text(words_of(error))
        raise
    (folder / _RECORD).write_bytes(pickle.dumps(record))
