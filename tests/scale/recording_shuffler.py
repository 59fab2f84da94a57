"""Run as `python -m tests.scale.recording_shuffler`: a shuffler that records the noise it draws."""

from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.signing import digest_of
from shuffledp.common.runtime.service import Service, main
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler import server, shuffle_job
from shuffledp.shuffler.settings import ShufflerSettings


def recorded_noise(state: Path, digest: TaskDigest) -> list[NDArray[np.int64]]:
    """Return the different draws of a shuffler for a task, each the dummies of every item."""
    files = _folder(state).glob(f"{digest.hex()}.*")
    return [np.frombuffer(file.read_bytes(), np.int64) for file in files]


def _folder(state: Path) -> Path:
    return state.with_name(f"{state.name}-noise")


async def start(settings: ShufflerSettings) -> Service:
    """Start a shuffler, in either role, that records every draw before it is used."""
    folder, draw = _folder(settings.state_directory), shuffle_job._draw_dummies
    folder.mkdir(exist_ok=True)

    def recording(task: Task, hop: int, seed: bytes) -> NDArray[np.int64]:
        drawn = draw(task, hop, seed)
        content, digest = drawn.tobytes(), digest_of(task.to_bytes()).hex()
        unfinished = folder / f"unfinished-{digest}"
        unfinished.write_bytes(content)
        unfinished.replace(folder / f"{digest}.{sha256(content).hexdigest()}")
        return drawn

    shuffle_job._draw_dummies = recording
    return await server.start(settings)


if __name__ == "__main__":
    main("shuffler", ShufflerSettings, start)
