"""Limits of a person, for tests."""

from common.signing import PublicIdentity
from user_agent.policy import Policy


def generous(identity: PublicIdentity) -> Policy:
    """Pin an analyzer and leave room for tiny batches, which claim little more than local ε."""
    return Policy(identity=identity, local_epsilon_cap=4.0, total_central_epsilon_cap=20.0)
