"""Privacy policies for tests."""

from typing import Any

from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.user_agent.policy import Policy
from tests.support.keys import SHUFFLER


def generous(
    identity: PublicIdentity,
    local_epsilon_cap: float = 4.0,
    shuffler: PublicIdentity = SHUFFLER.public_identity(),  # noqa: B008  # immutable
    issuer_identity: PublicIdentity | None = None,
    *,
    allow_tasks_without_tokens: bool = True,
    **changes: Any,
) -> Policy:
    """
    Pin an analyzer and a shuffler, with room for tiny batches.

    Their central ε is close to their local ε. Total caps are at least those for one answer.
    """
    fields: dict[str, Any] = {
        "analyzer_identity": identity,
        "shuffler_identity": shuffler,
        "issuer_identity": issuer_identity,
        "allow_tasks_without_tokens": allow_tasks_without_tokens,
        "local_epsilon_cap": local_epsilon_cap,
        "coalition_epsilon_cap": local_epsilon_cap,
        "total_local_epsilon_cap": max(20.0, local_epsilon_cap),
        "total_coalition_epsilon_cap": max(20.0, local_epsilon_cap),
        "total_central_epsilon_cap": 20.0,
        "lasting_responses": True,
    }
    return Policy(**fields | changes)
