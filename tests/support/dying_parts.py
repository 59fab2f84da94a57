"""Parts of the shuffler's jobs in workers that die, once per stage, and wait to be killed."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, Final

from shuffledp.shuffler.worker import run_part

MARKS: Final = "SHUFFLEDP_TEST_MARKS"
"""Variable with a folder of files: `STAGE` names stages that have been run in a worker that died
afterwards, and `STAGE.wait` stages whose parts wait until the file is removed."""


async def run_and_die_once(kind: str, folder: str, stage: str, part: int) -> Any:
    """Run a part; end the worker before it returns the result, once for each stage."""
    marks = Path(os.environ[MARKS])
    result = await run_part(kind, folder, stage, part)
    try:
        (marks / stage).touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    while (marks / f"{stage}.wait").exists():
        await asyncio.sleep(0.05)
    return result
