"""
What a device does when it checks on its answer: what it asks for and when, and what it keeps.

A bucket is told to a shuffler that has shown what the analyzer signed, and to no other: whoever
chooses the depth of the tree and its salt would learn which report is asked for.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from common.crypto.merkle import SALT_BYTES, Tree, split
from common.crypto.signing import SIGNATURE_BYTES, SigningIdentity
from common.messages.batch import BATCH_ID_BYTES, BatchId
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.task.task import NONCE_BYTES, Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.checks import Checks
from deploy.audit.code.buckets import of_shape
from deploy.audit.sample_task import FEW_USERS, sampling_task
from deploy.audit.stand_ins.small_device import SmallDevice
from user_agent.evidence import Inclusion

_OTHER: Final = TaskDigest(b"\x5a" * DIGEST_BYTES)
_ANSWERS: Final = 10
"""Of one device, whose times of asking are compared."""
_PAUSE: Final = 1_000.0
_STEPS: Final = 20
"""That nine of ten answers are asked about in one of so many has a chance of 4e-10."""
_FORTNIGHT: Final = 14 * 24 * 3600.0
_A_LITTLE: Final = 3.0
"""Seconds: more than a device lets pass while it asks here."""


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
    await _commitments(checks, task, device, identity, rng)
    await _two_commitments(checks, task, device, identity, rng)
    await _times(checks, task, device)
    await _patience(checks, task, device)
    await _sampling(checks, device)


async def _commitments(
    checks: Checks,
    task: Task,
    device: Callable[[], SmallDevice],
    identity: SigningIdentity,
    rng: np.random.Generator,
) -> None:
    for words in ("unsigned", "signed by another", "of another task", "of another depth", "right"):
        with device() as one:
            await one.answers(task)
            kept = await one.evidence(task)
            leaves = b"" if kept is None else kept.leaves
            tree, signed = _batch(leaves, identity, one.sign(task).digest(), rng)
            shown = {"right": signed, **_wrong(signed, tree, identity)}[words]
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


def _batch(
    leaves: bytes, identity: SigningIdentity, digest: TaskDigest, rng: np.random.Generator
) -> tuple[Tree, BatchCommitment]:
    """Give a batch's tree, and what the analyzer signs of it."""
    salt = rng.bytes(SALT_BYTES)
    tree = Tree.over(bytearray(leaves), salt)
    batch_id = BatchId(rng.bytes(BATCH_ID_BYTES))
    return tree, BatchCommitment.sign(identity, digest, batch_id, tree, salt)


def _wrong(
    signed: BatchCommitment, tree: Tree, identity: SigningIdentity
) -> dict[str, BatchCommitment]:
    """
    Give commitments that differ from what was signed, or from what should be.

    Of another task, and of another depth, the analyzer has signed them: by the signature alone
    they would be believed.
    """
    batch_id, salt = signed.batch_id, signed.salt
    deeper = of_shape(tree, bits=tree.bits + 1)
    stranger = SigningIdentity.generate()
    return {
        "unsigned": dataclasses.replace(signed, signature=bytes(SIGNATURE_BYTES)),
        "signed by another": BatchCommitment.sign(
            stranger, signed.task_digest, batch_id, tree, salt
        ),
        "of another task": BatchCommitment.sign(identity, _OTHER, batch_id, tree, salt),
        "of another depth": BatchCommitment.sign(
            identity, signed.task_digest, batch_id, deeper, salt
        ),
    }


async def _two_commitments(
    checks: Checks,
    task: Task,
    device: Callable[[], SmallDevice],
    identity: SigningIdentity,
    rng: np.random.Generator,
) -> None:
    """Show one commitment, and a proof under another: the analyzer has signed both."""
    for words in ("batch", "tree"):
        with device() as one:
            await one.answers(task)
            kept = await one.evidence(task)
            leaves = b"" if kept is None else kept.leaves
            tree, signed = _batch(leaves, identity, one.sign(task).digest(), rng)
            other, first = _batch(leaves, identity, signed.task_digest, rng)
            if words == "batch":
                other, first = (
                    tree,
                    BatchCommitment.sign(
                        identity, signed.task_digest, first.batch_id, tree, signed.salt
                    ),
                )
            one.shuffler.shows_first = InclusionProof.of(other, first, 0)
            one.shuffler.shows = InclusionProof.of(tree, signed, 0)
            await one.watches()
            asked, kept = one.shuffler.prefixes, await one.evidence(task)
        checks.must(
            f"nothing is concluded where commitments to another {words} are shown for one task",
            any(prefix is not None for prefix in asked)
            and kept is not None
            and kept.inclusion is Inclusion.UNCHECKED,
        )


async def _times(checks: Checks, task: Task, device: Callable[[], SmallDevice]) -> None:
    """A question that followed an answer, or another question, in time would link the two."""
    asked = []
    with device() as one:
        for number in range(_ANSWERS):
            await one.answers(dataclasses.replace(task, nonce=number.to_bytes(NONCE_BYTES)))
        watch = one.watch(_PAUSE)
        for _ in range(_STEPS + 1):
            before = len(one.shuffler.prefixes)
            await watch.check_due()
            asked.append(len(one.shuffler.prefixes) - before)
            one.clock.seconds += _PAUSE / _STEPS
    checks.must("a device that starts asks nothing at once", asked[0] == 0)
    checks.must(
        "every answer is asked about at a time of its own, and hardly more often than once a pause",
        max(asked) < _ANSWERS - 1 and _ANSWERS <= sum(asked) <= 2 * _ANSWERS,
    )


async def _patience(checks: Checks, task: Task, device: Callable[[], SmallDevice]) -> None:
    """A shuffler that shows nothing is found out when, and not before, it must have shown it."""
    for past, wanted in ((-_A_LITTLE, Inclusion.UNCHECKED), (_A_LITTLE, Inclusion.UNPROVEN)):
        with device() as one:
            await one.answers(task)
            one.clock.seconds = task.deadline + _FORTNIGHT + past
            await one.watches()
            kept = await one.evidence(task)
        checks.must(
            "an answer without proof is asked about for a fortnight after the deadline, and is "
            "unproven then",
            kept is not None and kept.inclusion is wanted,
        )


async def _sampling(checks: Checks, device: Callable[[], SmallDevice]) -> None:
    """Whoever asks for a report learns, and shows, whether it was kept."""
    task = sampling_task(delta=0.01, n_min=FEW_USERS, target_size=FEW_USERS)
    with device() as one:
        answered = await one.answers(task)
        await one.watches()
        kept = await one.evidence(task)
        asked = one.shuffler.prefixes
    checks.must("a task that lets the shuffler drop reports is answered", answered)
    checks.must(
        "of a task that lets the shuffler drop reports a device keeps no leaves, and asks nothing",
        kept is not None
        and (kept.inclusion, kept.leaves) == (Inclusion.SAMPLED, b"")
        and not asked,
    )
