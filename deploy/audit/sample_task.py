"""A task that is never published: for laws that are tested, and designs to compare with."""

from typing import Any, Final

from analyzer.registry import complete
from common.draft import TaskDraft
from common.task import NONCE_BYTES, Task

_KEY: Final = bytes(31) + b"\x09"
"""A public key to nobody: nothing is sealed to it."""
_DEADLINE: Final = 2**31
_USERS: Final = 100_000
_DELTA: Final = 1e-6


def sample_task(**fields: Any) -> Task:  # noqa: ANN401  # of a draft
    """
    Make a task.

    Args:
        **fields: Of a TaskDraft; protocol, domain_size and local_epsilon at least. Items are named,
            for protocols that need it.

    Raises:
        TaskError: They break a rule.
    """
    size = fields["domain_size"]
    plain = {"delta": _DELTA, "n_min": _USERS, "target_size": _USERS, "deadline": _DEADLINE}
    draft = TaskDraft(
        labels=tuple(f"item {item}" for item in range(size)), shuffler_key=_KEY, **plain | fields
    )
    return complete(draft, analyzer_key=_KEY, nonce=bytes(range(NONCE_BYTES)))
