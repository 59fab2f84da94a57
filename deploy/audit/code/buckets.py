"""
What the analyzer signs of a batch, and what the shuffler keeps and shows of it.

A bucket hides which of its reports is asked for as long as it is large and looks like all others;
a proof holds the analyzer to its word as long as it is of this task, and is there.
"""

import asyncio
import copy
import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest import mock

import numpy as np

from common.crypto.merkle import HASH_BYTES, SALT_BYTES, Tree, bits_for
from common.crypto.signing import PublicIdentity, SigningIdentity
from common.errors import ProofError
from common.messages.batch import BATCH_ID_BYTES, BatchId, BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.runtime import logs
from common.task.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from common.wire.evidence import proof_to_wire
from deploy.audit.checks import Checks
from deploy.audit.sample_task import sample_task, sampling_task
from deploy.audit.stand_ins.still_clock import StillClock
from shuffler.inclusion import Inclusions

_DEPTHS: Final = {0: 0, 1: 0, 256: 0, 511: 0, 512: 1, 1_023: 1, 1_024: 2, 10**6: 11, 10**7: 15}
"""Of trees over so many leaves."""
_LEAVES: Final = 5_000
_FEWEST: Final = 256
"""Leaves in a bucket, on average: among so many a device's own stands."""
_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_BATCH: Final = BatchId(bytes(BATCH_ID_BYTES))
_KEPT: Final = 1_000.0
"""Seconds that a shuffler keeps proofs here."""
_FILES: Final = 2
"""Of one batch: its hashes, and what was signed."""
_OTHERS_SIGNED: Final = "analyzer signed other reports than were sent"


def check_buckets(checks: Checks, rng: np.random.Generator) -> None:
    """Sign trees of right and wrong shapes, and let a shuffler keep, show and forget them."""
    _check_shapes(checks, rng)
    _check_depths(checks)
    asyncio.run(_check_kept(checks, rng))


def of_shape(tree: Tree, **shape: int) -> Tree:
    """Give a tree that says something else of its shape, to be signed so."""
    other = copy.copy(tree)
    vars(other).update(shape)
    return other


def _check_shapes(checks: Checks, rng: np.random.Generator) -> None:
    """What the analyzer signed by its own hand is believed of its own task and shape alone."""
    identity, salt = SigningIdentity.generate(), rng.bytes(SALT_BYTES)
    public = identity.public_identity()
    tree = Tree.over(bytearray(rng.bytes(_LEAVES * HASH_BYTES)), salt)

    def signed(digest: TaskDigest, shape: Tree) -> BatchCommitment:
        return BatchCommitment.sign(identity, digest, _BATCH, shape, salt)

    other = TaskDigest(b"\x01" * DIGEST_BYTES)
    checks.must(
        "what the analyzer signed of one task is not believed of another",
        believed(signed(other, tree), public, other)
        and not believed(signed(other, tree), public, _DIGEST),
    )
    wrong = [{"bits": bits} for bits in range(33) if bits != tree.bits]
    wrong += [{"n_leaves": count} for count in (0, 511, 4_095, 8_192, 10**9)]
    checks.must(
        "what the analyzer signed is not believed of another depth than its leaves have",
        not any(believed(signed(_DIGEST, of_shape(tree, **one)), public) for one in wrong),
    )


def believed(
    commitment: BatchCommitment, identity: PublicIdentity, digest: TaskDigest = _DIGEST
) -> bool:
    """Say whether a device takes a commitment for the analyzer's word on a task."""
    try:
        commitment.check(identity, digest)
    except ProofError:
        return False
    return True


def _check_depths(checks: Checks) -> None:
    checks.must(
        "a tree is no deeper than leaves its buckets large",
        {count: bits_for(count) for count in _DEPTHS} == _DEPTHS,
    )


async def _check_kept(checks: Checks, rng: np.random.Generator) -> None:
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        shuffler = _Shuffler(Path(folder), rng)
        for what in (shuffler.shows, shuffler.forgets, shuffler.compares, shuffler.samples):
            await what(checks)


class _Shuffler:
    """What a shuffler keeps of batches, and the analyzer that signs them."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        self._folder, self._rng, self._made = folder, rng, 0
        self._identity, self._clock = SigningIdentity.generate(), StillClock()
        self._task = sample_task(protocol="ldp-grr", domain_size=4, local_epsilon=0.5)
        self._sent = rng.bytes(_LEAVES * HASH_BYTES)

    def _inclusions(self) -> Inclusions:
        """Open a directory that is empty."""
        self._made += 1
        return Inclusions(
            directory=self._directory,
            identity=self._identity.public_identity(),
            keep_seconds=_KEPT,
            clock=self._clock,
        )

    @property
    def _directory(self) -> Path:
        return self._folder / str(self._made)

    def _files(self) -> int:
        return len(list(self._directory.iterdir()))

    async def _keep(
        self,
        inclusions: Inclusions,
        task: Task,
        signed_leaves: bytes | None = None,
        batch: BatchId = _BATCH,
    ) -> list[str]:
        """
        Let it keep what it sent and what was signed.

        Args:
            inclusions: Of an empty directory.
            task: Of the batch.
            signed_leaves: What the analyzer signs; what was sent, unless said.
            batch: Of which it signs them.

        Returns:
            What it logs as an error.
        """
        salt = self._rng.bytes(SALT_BYTES)
        tree = Tree.over(bytearray(signed_leaves or self._sent), salt)
        signed = BatchCommitment.sign(self._identity, _DIGEST, batch, tree, salt)
        manifest = BatchManifest(
            task_digest=_DIGEST, batch_id=_BATCH, n_users=_LEAVES, n_reports=_LEAVES
        )
        with mock.patch.object(logs, "event") as event:
            await inclusions.keep(manifest, task, signed, bytearray(self._sent))
        return [call.args[0] for call in event.call_args_list if call.kwargs["level"] == "ERROR"]

    async def shows(self, checks: Checks) -> None:
        """Ask for every bucket."""
        inclusions = self._inclusions()
        errors = await self._keep(inclusions, self._task)
        buckets = 1 << bits_for(_LEAVES)
        relayed = [await inclusions.relay(_DIGEST, prefix) for prefix in range(buckets)]
        proofs = [proof for proof, _ in relayed if isinstance(proof, InclusionProof)]
        checks.must(
            "a shuffler shows every report that was signed, in buckets of hundreds",
            len(proofs) == buckets
            and sum(len(proof.bucket) for proof in proofs) == _LEAVES * HASH_BYTES
            and buckets * _FEWEST <= _LEAVES,
        )
        answers = [proof_to_wire(*one).SerializeToString() for one in relayed]
        checks.must(
            "an answer has one length whichever bucket is asked for, though these differ",
            len({len(answer) for answer in answers}) == 1
            and len({len(proof.bucket) for proof in proofs}) > 1,
        )
        checks.must("a shuffler reports nobody who signed what was sent", not errors)

    async def forgets(self, checks: Checks) -> None:
        """Let the time pass for which proofs are kept, of batches before and after deadlines."""
        now = int(self._clock.seconds)
        for deadline in (now - 500, now + 500):
            self._clock.seconds = now
            inclusions = self._inclusions()
            await self._keep(inclusions, dataclasses.replace(self._task, deadline=deadline))
            ends = max(deadline, now) + _KEPT
            self._clock.seconds = ends - 1
            inclusions.forget()
            checks.must(
                "hashes of what was sent are kept as long as is said",
                self._files() == _FILES and await _shown(inclusions),
            )
            self._clock.seconds = ends + 1
            inclusions.forget()
            checks.must(
                "hashes of what was sent are deleted after that",
                self._files() == 0 and not await _shown(inclusions),
            )

    async def compares(self, checks: Checks) -> None:
        """Let the analyzer sign something else than was sent."""
        less = self._sent[HASH_BYTES:] + self._rng.bytes(HASH_BYTES)
        for words, leaves, batch in (
            ("other reports", less, _BATCH),
            ("another batch", self._sent, BatchId(bytes([1]) * BATCH_ID_BYTES)),
        ):
            errors = await self._keep(self._inclusions(), self._task, leaves, batch)
            checks.must(
                f"a shuffler notices an analyzer that signs {words}", errors == [_OTHERS_SIGNED]
            )

    async def samples(self, checks: Checks) -> None:
        """Keep nothing of a task that samples: whether a report is there is its secret."""
        task = sampling_task()
        inclusions = self._inclusions()
        await self._keep(inclusions, task)
        checks.must(
            "a shuffler keeps and shows no hashes of a task that lets it drop reports",
            self._files() == 0 and not await _shown(inclusions),
        )


async def _shown(inclusions: Inclusions) -> bool:
    """Say whether there is a bucket to be seen, on the disk or in memory."""
    try:
        await inclusions.relay(_DIGEST, 0)
    except ProofError:
        return False
    return True
