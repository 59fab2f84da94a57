"""The demo's task, which `load` takes too where it is given no draft."""

from typing import Final

from common.draft import TaskDraft

_LOCAL_EPSILON: Final = 4.0
_BUCKETS: Final = 53
_DUMMIES_PER_USER: Final = 1
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
    Give the draft of a task that closes with its last user, or after a day.

    Args:
        domain_size: Items.
        n_users: Users who must be stored.
        now: Seconds since 1970 UTC.
        shuffler_key: The shuffler's public key.
        labels: The items' names, or none.
    """
    return TaskDraft(
        protocol="od-hp",
        domain_size=domain_size,
        labels=labels,
        buckets=_BUCKETS,
        dummies_per_user=_DUMMIES_PER_USER,
        local_epsilon=_LOCAL_EPSILON,
        delta=_DELTA,
        n_min=n_users,
        target_size=n_users,
        deadline=int(now) + _SECONDS,
        shuffler_key=shuffler_key,
    )
