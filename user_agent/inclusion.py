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


def conclusion(
    asked: Sequence[bytes],
    commitment: BatchCommitment,
    proofs: Sequence[InclusionProof],
    identity: PublicIdentity,
    digest: TaskDigest,
) -> Inclusion:
    """
    Conclude from a proof for each leaf. Trusts the pinned analyzer's signature, and nothing else.

    Args:
        asked: Leaves of the own answer.
        commitment: What the first reply held; one task has one.
        proofs: The bucket of each leaf, in the same order.
        identity: The pinned analyzer's.
        digest: The task.

    Returns:
        COUNTED or MISSING.

    Raises:
        ProofError: A proof proves neither, or speaks of another batch than the first.
    """
    for proof in proofs:
        if proof.commitment != commitment:
            raise ProofError("two commitments are shown for one task")
    held = [proof.holds(leaf, identity, digest) for leaf, proof in zip(asked, proofs, strict=True)]
    return Inclusion.COUNTED if all(held) else Inclusion.MISSING
