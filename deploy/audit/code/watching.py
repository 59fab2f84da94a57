"""
What a device does when it checks on its answer: what it asks for, and what it keeps afterwards.

A bucket is told to a shuffler that has shown what the analyzer signed, and to no other: whoever
chooses the depth of the tree and its salt would learn which report is asked for.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from common.batch import BATCH_ID_BYTES, BatchId
from common.inclusion import BatchCommitment, InclusionProof
from common.merkle import SALT_BYTES, Tree, split
from common.signing import SIGNATURE_BYTES, SigningIdentity
from common.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.checks import Checks
from deploy.audit.stand_ins.small_device import SmallDevice
from user_agent.evidence import Inclusion

_OTHER: Final = TaskDigest(b"\x5a" * DIGEST_BYTES)


async def check_watching(
    checks: Checks,
    task: Task,
    device: Callable[[], SmallDevice],
    identity: SigningIdentity,
    rng: np.random.Generator,
) -> None:
    """
    Show devices commitments that are not what the analyzer signed for the task, and one that is.

    Args:
        checks: Where it is noted.
        task: Which devices answer.
        device: Gives a device that has never answered.
        identity: The analyzer's.
        rng: Draws salts and batches.
    """
    for words in ("unsigned", "signed by another", "of another task", "of another depth", "right"):
        with device() as one:
            await one.answers(task)
            kept = await one.evidence(task)
            leaves = b"" if kept is None else kept.leaves
            tree_salt = rng.bytes(SALT_BYTES)
            tree = Tree.over(bytearray(leaves), tree_salt)
            signed = BatchCommitment.sign(
                identity,
                one.sign(task).digest(),
                BatchId(rng.bytes(BATCH_ID_BYTES)),
                tree,
                tree_salt,
            )
            shown = {"right": signed, **_wrong(signed, tree)}[words]
            one.shuffler.shows = InclusionProof.of(tree, shown, 0)
            await one.watches()
            asked, kept = one.shuffler.prefixes, await one.evidence(task)
            on_disk = b"".join(path.read_bytes() for path in one.folder.iterdir())
        found = None if kept is None else kept.inclusion
        if words != "right":
            checks.must(
                f"a shuffler whose commitment is {words} is asked for no bucket",
                bool(asked) and set(asked) == {None},
            )
            checks.must(
                f"nothing is concluded from a commitment that is {words}",
                found is Inclusion.UNCHECKED,
            )
            continue
        checks.must("an answer in the batch that was signed counts", found is Inclusion.COUNTED)
        checks.must(
            "a device keeps nothing that names its reports when they were counted",
            kept is not None
            and kept.leaves == b""
            and leaves != b""
            and not any(leaf in on_disk for leaf in split(leaves)),
        )


def _wrong(signed: BatchCommitment, tree: Tree) -> dict[str, BatchCommitment]:
    """Give commitments that differ from what was signed, or from what should be."""
    stranger = BatchCommitment.sign(
        SigningIdentity.generate(), signed.task_digest, signed.batch_id, tree, signed.salt
    )
    return {
        "unsigned": dataclasses.replace(signed, signature=bytes(SIGNATURE_BYTES)),
        "signed by another": stranger,
        "of another task": dataclasses.replace(signed, task_digest=_OTHER),
        "of another depth": dataclasses.replace(signed, bits=signed.bits + 1),
    }
