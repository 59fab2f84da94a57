"""A task that is never published: for laws that are tested, and designs to compare with."""

import math
from functools import cache
from typing import Any, Final

from analyzer.task_builder import complete
from common.task.draft import TaskDraft
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.task import NONCE_BYTES, Task

_KEY: Final = bytes(31) + b"\x09"
"""A public key to nobody: nothing is sealed to it."""
_DEADLINE: Final = 2**31
_USERS: Final = 100_000
_DELTA: Final = 1e-6
FEW_USERS: Final = 60
"""So few that a guarantee is worked out, and a claim confirmed, in hundredths of a second."""


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


def sampling_task(*, dummies: int = 70, **fields: Any) -> Task:  # noqa: ANN401  # of a draft
    """
    Make one that lets the shuffler drop each report with probability 1/2, and add dummies.

    Args:
        dummies: At most so many of an item; half of them on average.
        **fields: Of a TaskDraft, beside those.

    Raises:
        TaskError: They break a rule.
    """
    spec = ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 2, trials=dummies, most=dummies)
    plain = {"protocol": "sbin", "domain_size": 4, "local_epsilon": math.inf, "shuffler": spec}
    return sample_task(**plain | fields)


@cache
def amplified_task() -> Task:
    """Give one for few users, whose central ε is far below its local ε all the same."""
    return sample_task(
        protocol="murs",
        domain_size=5,
        buckets=5,
        local_epsilon=1.0,
        n_min=FEW_USERS,
        target_size=FEW_USERS,
    )
