"""
Runs the shuffler's parts in a worker of its engine.

A worker has the settings of the role `worker`, in its environment. It reads the submissions from
the store, or from the coordinator's database if both share a machine.
"""

import os
from functools import cache
from typing import Any

from shuffledp.common.runtime.blocks import open_blocks
from shuffledp.common.runtime.parts.jobs import PartRunner
from shuffledp.common.runtime.settings import load
from shuffledp.shuffler.inclusion import ProofJob
from shuffledp.shuffler.relay.layer_jobs import LayerJob, RelayJob
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.shuffle_job import ShuffleJob
from shuffledp.shuffler.storage.open_store import open_groups


@cache
def _runner() -> PartRunner:
    settings = load(ShufflerSettings, None, os.environ, "SHUFFLEDP_SHUFFLER")
    return PartRunner.of(
        settings,
        (ShuffleJob, ProofJob, LayerJob, RelayJob),
        {"blocks": open_blocks(settings.blocks_url()), "source": open_groups(settings)},
    )


async def run_part(kind: str, folder: str, stage: str, part: int) -> Any:  # noqa: ANN401  # any stage's
    """Run one part; see `PartRunner.run`. Raises SettingsError in a process of another role."""
    return await _runner().run(kind, folder, stage, part)
