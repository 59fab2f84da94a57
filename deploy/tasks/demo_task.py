"""Task drafts for demos, load runs and audits."""

import math
from collections.abc import Mapping
from typing import Any, Final

from common.messages.guarantee import default_delta
from common.task.draft import RelayDraft, TaskDraft
from common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from deploy.terminal.durations import DAY

DEMO_PARAMETERS: Final[Mapping[str, Any]] = {
    "protocol": "od-hp",
    "buckets": 53,
    "dummies_per_user": 1,
    "local_epsilon": 4.0,
}
"""Protocol and parameters for items in the demo."""
_NOISE: Final = GeometricNoise(peak=22, left_weight=602140992, right_weight=602140992, most=58)
"""From `shuffledp plan --shufflers 2 --central-epsilon 1 --coalition-epsilon 1.157`."""
_TABLE_NOISE: Final = GeometricNoise(
    peak=110, left_weight=934582848, right_weight=934582848, most=289
)
"""From `shuffledp plan --task-kind table --attribute-sizes 5,4,3,4 --shufflers 2
--central-epsilon 1`."""


def _by_two(protocol: str, noise: GeometricNoise) -> dict[str, Any]:
    return {
        "protocol": protocol,
        "local_epsilon": math.inf,
        "shuffler_name": "first.localhost",
        "shuffler": ShufflerSpec(noise=noise),
        "relay": RelayDraft(name="second.localhost", key=b"", noise=noise),
    }


DEMO_TABLES: Final[Mapping[str, Any]] = _by_two("geo-tables", _TABLE_NOISE)
"""Protocol and parameters for tables in the demo. Devices with default settings refuse reports
without local noise unless each of two shufflers hides them."""


def with_two_shufflers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a draft for items, for two shufflers that each add the same noise."""
    kept = {name: value for name, value in fields.items() if name not in DEMO_PARAMETERS}
    return {**kept, **_by_two("sageo", _NOISE)}


def closing_draft(
    fields: Mapping[str, Any], n_users: int, *, now: float, shuffler_key: bytes = b""
) -> TaskDraft:
    """Return the draft of a task that closes at n_users users, or a day after `now` (UNIX time)."""
    return TaskDraft(
        **fields,
        delta=default_delta(n_users),
        n_min=n_users,
        target_size=n_users,
        deadline=int(now) + DAY,
        shuffler_key=shuffler_key,
    )
