"""
Runs the analyzer's parts in a worker of its engine.

A worker has the settings of the role `worker`, in its environment.
"""

import os
from functools import cache
from typing import Any

from shuffledp.analyzer.count_job import CountJob
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.runtime.blocks import open_blocks
from shuffledp.common.runtime.parts.jobs import PartRunner
from shuffledp.common.runtime.settings import load


@cache
def _runner() -> PartRunner:
    settings = load(AnalyzerSettings, None, os.environ, "SHUFFLEDP_ANALYZER")
    return PartRunner.of(settings, (CountJob,), {"blocks": open_blocks(settings.blocks_url())})


async def run_part(kind: str, folder: str, stage: str, part: int) -> Any:  # noqa: ANN401  # any stage's
    """Run one part; see `PartRunner.run`. Raises SettingsError in a process of another role."""
    return await _runner().run(kind, folder, stage, part)
