"""Tasks that are never published: designs to compare with."""

from typing import Any, Final

from analyzer.task_builder import complete
from common.task.draft import TaskDraft
from common.task.task import NONCE_BYTES, Task

_KEY: Final = bytes(31) + b"\x09"
"""A public key whose private key is thrown away."""
_DEADLINE: Final = 2**31
_USERS: Final = 100_000
_DELTA: Final = 1e-6


def sample_task(**fields: Any) -> Task:  # noqa: ANN401  # of a draft
    """
    Make a task.

    Args:
        **fields: Of a TaskDraft; protocol, domain_size and local_epsilon at least. Items are named,
            for protocols that need it, unless `labels` names others.

    Raises:
        TaskError: They break a rule.
    """
    size = fields["domain_size"]
    plain: dict[str, Any] = {
        "labels": tuple(f"item {item}" for item in range(size)),
        "delta": _DELTA,
        "n_min": _USERS,
        "target_size": _USERS,
        "deadline": _DEADLINE,
    }
    draft = TaskDraft(shuffler_key=_KEY, **plain | fields)
    return complete(draft, analyzer_key=_KEY, nonce=bytes(range(NONCE_BYTES)))
