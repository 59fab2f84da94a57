"""Whether an answer was counted, from what the shuffler shows. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from common.errors import ProofError
from common.inclusion import BatchCommitment, InclusionProof
from common.merkle import split
from common.signing import PublicIdentity
from common.task_digest import TaskDigest
from user_agent.evidence import Inclusion

MOST_ASKED: Final = 64
"""Reports of one answer that are asked for; of more, so many drawn at random. A lost submission is
found by any of them, and one report lost of k by 64/k of all devices that it happens to."""


def to_ask(leaves: bytes, rng: np.random.Generator) -> list[bytes]:
    """Choose the leaves to ask for, in an order drawn at random."""
    own = split(leaves)
    return [own[place] for place in rng.permutation(len(own))[:MOST_ASKED]]


def counted(
    leaf: bytes,
    proof: InclusionProof,
    commitment: BatchCommitment,
    identity: PublicIdentity,
    digest: TaskDigest,
) -> bool:
    """
    Say whether a report was counted. Trusts the pinned analyzer's signature, and nothing else.

    Args:
        leaf: Of the own answer.
        proof: Its bucket.
        commitment: What the first reply held; one task has one.
        identity: The pinned analyzer's.
        digest: The task.

    Raises:
        ProofError: The proof proves neither, or speaks of another batch than the first reply.
    """
    if proof.commitment != commitment:
        raise ProofError("two commitments are shown for one task")
    return proof.holds(leaf, identity, digest)


def conclusion(counted: Sequence[bool]) -> Inclusion:
    """Conclude from what was proven of each report that was asked for: COUNTED or MISSING."""
    return Inclusion.COUNTED if all(counted) else Inclusion.MISSING
