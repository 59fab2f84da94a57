"""Limits of a person, for tests."""

from common.crypto.signing import PublicIdentity
from user_agent.policy import Policy


def generous(identity: PublicIdentity, local_epsilon_cap: float = 4.0) -> Policy:
    """
    Pin an analyzer and leave room for tiny batches, which claim little less than their local ε.

    Whoever has no cap for one answer has none for all of them either.
    """
    return Policy(
        identity=identity,
        local_epsilon_cap=local_epsilon_cap,
        total_local_epsilon_cap=max(20.0, local_epsilon_cap),
        total_central_epsilon_cap=20.0,
        lasting_responses=True,
    )
