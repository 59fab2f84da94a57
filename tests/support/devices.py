"""User agents for tests."""

from pathlib import Path
from typing import Any

import numpy as np

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.user_agent.core import Agent
from shuffledp.user_agent.credentials import PersonalSecrets
from shuffledp.user_agent.device_store import DeviceStore
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask


def agent_of(
    path: Path, case: PublishedTask, shuffler: MemoryShuffler, *, seed: int = 1, **changes: Any
) -> Agent:
    """Return an agent of one person for a published task; its budget is in `path`."""
    fields: dict[str, Any] = {
        "shuffler": shuffler,
        "store": DeviceStore(path / "budget.sqlite"),
        "policy": generous(case.identity.public_identity()),
        "several_persons": False,
        "clock": ManualClock(),
        "rng": np.random.default_rng(seed),
        "secrets": PersonalSecrets(bytes(32)),
    }
    return Agent(**fields | changes)
