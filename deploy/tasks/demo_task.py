"""Task drafts for demos, load runs and audits."""

from collections.abc import Mapping
from typing import Any, Final

from common.messages.guarantee import default_delta
from common.task.draft import TaskDraft
from deploy.terminal.durations import DAY

DEMO_PARAMETERS: Final[Mapping[str, Any]] = {
    "protocol": "od-hp",
    "buckets": 53,
    "dummies_per_user": 1,
    "local_epsilon": 4.0,
}
"""Protocol and parameters for items in the demo."""


def closing_draft(
    fields: Mapping[str, Any], n_users: int, *, now: float, shuffler_key: bytes
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
