"""A shuffler that does with a batch what it likes, and otherwise plays its part."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import numpy as np

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, envelope_context, report_context
from common.crypto.merkle import leaves_of
from common.crypto.receipt import sign_receipt
from common.crypto.signing import SignedTask, SigningIdentity
from common.messages.batch import BatchId, BatchManifest
from common.messages.inclusion_proof import InclusionProof
from common.messages.submission import unpack
from common.task.task import Task
from common.task_digest import TaskDigest
from shuffler.inclusion import Inclusions
from tests.support.analyzer_core import AnalyzerCore
from tests.support.clocks import ManualClock

Users = list[list[bytes]]
"""Of each user the sealed reports, in the order of arrival."""
Tampering = Callable[["DishonestShuffler", Users], tuple[Users, bool]]
"""Gives what is delivered in place of what came, and whether it is shuffled."""

BATCH: Final = BatchId(b"x" * 16)


class DishonestShuffler:
    """Takes submissions and gives receipts as an honest one; what it delivers is up to a test."""

    def __init__(self, path: Path, analyzer: AnalyzerCore, key: HpkePrivateKey) -> None:
        self._analyzer = analyzer
        self._key = key
        self.identity = SigningIdentity.generate()
        self.users: Users = []
        self.rng = np.random.default_rng(7)
        self.inclusions = Inclusions(
            directory=path,
            identity=analyzer.keys.identity.public_identity(),
            keep_seconds=1000,
            clock=ManualClock(),
        )

    @property
    def task(self) -> Task:
        """The task that it collects for."""
        return self._analyzer.task

    @property
    def digest(self) -> TaskDigest:
        """Its name."""
        return self._analyzer.signed.digest()

    def own_report(self) -> bytes:
        """A report that this shuffler made up, sealed like every other."""
        plaintext = bytes(self.task.mechanism.report_bytes)
        return HpkePublicKey(self.task.suite, self.task.analyzer_key).seal(
            plaintext, report_context(self.digest)
        )

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give the task."""
        assert digest == self.digest
        return self._analyzer.signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG002  # as the real one
        """Open an envelope, and give a receipt."""
        submission = unpack(self._key.open(envelope, envelope_context(digest)), self.task)
        sealed, size = submission.sealed_reports, self.task.sealed_report_bytes
        self.users.append([sealed[at : at + size] for at in range(0, len(sealed), size)])
        return sign_receipt(self.identity, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Show what an honest one would."""
        relayed, _ = await self.inclusions.relay(digest, prefix)
        if isinstance(relayed, InclusionProof):
            return relayed
        return InclusionProof(commitment=relayed, bucket=b"", path=())

    async def deliver(self, tampering: Tampering) -> None:
        """Deliver what the tampering makes of the batch, as if nothing had happened."""
        users, shuffled = tampering(self, [list(user) for user in self.users])
        reports = [report for user in users for report in user]
        if shuffled:
            reports = [reports[place] for place in self.rng.permutation(len(reports))]
        manifest = BatchManifest(
            task_digest=self.digest,
            batch_id=BATCH,
            n_users=len(users),
            n_reports=len(reports),
        )

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(reports), 50):
                yield b"".join(reports[start : start + 50])

        commitment = await self._analyzer.releases.deliver(manifest, chunks())
        leaves = bytearray(leaves_of(b"".join(reports), self.task.sealed_report_bytes))
        await self.inclusions.keep(manifest, self.task, commitment, leaves)
        await self._analyzer.settle()


def shuffles(_: DishonestShuffler, users: Users) -> tuple[Users, bool]:
    """Do what it should."""
    return users, True


def keeps_the_order(_: DishonestShuffler, users: Users) -> tuple[Users, bool]:
    """Deliver submissions as they came."""
    return users, False


def drops(number: int) -> Tampering:
    """Lose a user, and say that there was one fewer."""
    return lambda _, users: (users[:number] + users[number + 1 :], True)


def replaces(number: int) -> Tampering:
    """Put reports of its own in a user's place."""

    def tampering(shuffler: DishonestShuffler, users: Users) -> tuple[Users, bool]:
        users[number] = [shuffler.own_report() for _ in users[number]]
        return users, True

    return tampering


def duplicates(number: int, times: int = 1) -> Tampering:
    """Put a user's reports also in the places of the users behind."""

    def tampering(_: DishonestShuffler, users: Users) -> tuple[Users, bool]:
        for behind in range(number + 1, number + 1 + times):
            users[behind] = list(users[number])
        return users, True

    return tampering
