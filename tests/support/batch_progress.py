"""A batch's progress, as its shuffler's operator sees it."""

from typing import Any

from shuffledp.common.messages.batch import BatchProgress, BatchState


def progress(n_users: int, **changes: Any) -> BatchProgress:
    """Return a collecting batch with n_min 1,000 and target 2,000, with some fields changed."""
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
