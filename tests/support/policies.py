"""Privacy policies for tests."""

from common.crypto.signing import PublicIdentity
from tests.support.keys import SHUFFLER
from user_agent.policy import Policy


def generous(
    identity: PublicIdentity,
    local_epsilon_cap: float = 4.0,
    shuffler: PublicIdentity = SHUFFLER.public_identity(),  # noqa: B008  # immutable
    issuer_identity: PublicIdentity | None = None,
    *,
    allow_tasks_without_tokens: bool = True,
) -> Policy:
    """
    Pin an analyzer and a shuffler, with room for tiny batches.

    Their central ε is close to their local ε. The total cap is at least the cap for one answer.
    """
    return Policy(
        identity=identity,
        shuffler_identity=shuffler,
        issuer_identity=issuer_identity,
        allow_tasks_without_tokens=allow_tasks_without_tokens,
        local_epsilon_cap=local_epsilon_cap,
        total_local_epsilon_cap=max(20.0, local_epsilon_cap),
        total_central_epsilon_cap=20.0,
        permanent_responses=True,
    )
