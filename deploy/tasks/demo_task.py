"""The demo's tasks; `load` takes that of items too where it is given no draft."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from common.task.draft import TaskDraft

HASHED: Final[Mapping[str, Any]] = MappingProxyType(
    {"protocol": "od-hp", "buckets": 53, "dummies_per_user": 1, "local_epsilon": 4.0}
)
"""What the demo's draft for items says of its protocol."""
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
    """
    Give the draft of a task for items that closes with its last user, or after a day.

    Args:
        domain_size: Items.
        n_users: Users who must be stored.
        now: Seconds since 1970 UTC.
        shuffler_key: The shuffler's public key.
        labels: The items' names, or none.
    """
    fields = {"domain_size": domain_size, "labels": labels, **HASHED}
    return closing_draft(fields, n_users, now=now, shuffler_key=shuffler_key)


def closing_draft(
    fields: Mapping[str, Any], n_users: int, *, now: float, shuffler_key: bytes
) -> TaskDraft:
    """
    Give the draft of a task of any kind that closes with its last user, or after a day.

    Args:
        fields: What a draft says of its protocol and of what is asked.
        n_users: Users who must be stored.
        now: Seconds since 1970 UTC.
        shuffler_key: The shuffler's public key.
    """
    return TaskDraft(
        **fields,
        delta=_DELTA,
        n_min=n_users,
        target_size=n_users,
        deadline=int(now) + _SECONDS,
        shuffler_key=shuffler_key,
    )
