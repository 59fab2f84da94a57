"""Worker processes that die once in each stage, after they have written its output."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shuffledp.common.runtime.parts.executor import LocalExecutor


def run_and_die_once(stage: Callable[..., Any], marks: Path, job: object, part: int) -> Any:
    """Run a part; end the worker before it returns the result, once for each stage."""
    result, mark = stage(job, part), marks / stage.__name__
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return result
    os.kill(os.getpid(), signal.SIGKILL)
    return None


class DyingExecutor(LocalExecutor):
    """Runs parts in worker processes, one of which dies in each stage."""

    marks: Path
    """Folder that gets a file for each stage."""

    async def run(self, stage: Any, job: Any, parts: Any) -> list[Any]:
        """Run a stage."""
        dying = partial(run_and_die_once, stage, self.marks)
        dying.__name__ = stage.__name__  # type: ignore[attr-defined]
        return await super().run(dying, job, parts)
