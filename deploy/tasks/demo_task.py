"""The demo's tasks; `load` uses the one for items where it has no draft."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from common.task.draft import TaskDraft

HASHED: Final[Mapping[str, Any]] = MappingProxyType(
    {"protocol": "od-hp", "buckets": 53, "dummies_per_user": 1, "local_epsilon": 4.0}
)
"""The protocol of the demo's draft for items."""
_DELTA: Final = 1e-6
_SECONDS: Final = 24 * 3600


def demo_draft(
    domain_size: int,
    n_users: int,
    *,
    now: float,
    shuffler_key: bytes,
    labels: tuple[str, ...] = (),
) -> TaskDraft:
    """Return the draft of a task for items; see `closing_draft`."""
    fields = {"domain_size": domain_size, "labels": labels, **HASHED}
    return closing_draft(fields, n_users, now=now, shuffler_key=shuffler_key)


def closing_draft(
    fields: Mapping[str, Any], n_users: int, *, now: float, shuffler_key: bytes
) -> TaskDraft:
    """Return the draft of a task that closes with the last of n_users, or a day after `now`."""
    return TaskDraft(
        **fields,
        delta=_DELTA,
        n_min=n_users,
        target_size=n_users,
        deadline=int(now) + _SECONDS,
        shuffler_key=shuffler_key,
    )
