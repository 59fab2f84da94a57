"""How far a batch is, as a shuffler would tell its operator, for tests."""

from typing import Any

from common.messages.batch import BatchProgress, BatchState


def progress(n_users: int, **changes: Any) -> BatchProgress:
    """Return a batch that collects towards 1,000 users, or 2,000; changes are fields of it."""
    fields: dict[str, Any] = {
        "state": BatchState.COLLECTING,
        "n_users": n_users,
        "n_min": 1000,
        "target_size": 2000,
        "deadline": 1_000_003_600,
        "refused": {"malformed": 3, "token used": 12},
        "repeated": 17,
    }
    return BatchProgress(**fields | changes)
