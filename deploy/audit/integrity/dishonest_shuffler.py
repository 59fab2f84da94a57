"""A shuffler that does with a batch what it likes, and otherwise plays its part."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, envelope_context, report_context
from common.crypto.merkle import SALT_BYTES, Tree, leaves_of
from common.crypto.receipt import sign_receipt
from common.crypto.signing import SignedTask, SigningIdentity
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.messages.submission import plain_reports, unpack
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.integrity.analyzer_core import AnalyzerCore, manifest_of
from deploy.audit.raw_bytes import pieces
from deploy.audit.stand_ins.still_clock import StillClock
from shuffler.dummies import draw_item_dummies, draw_kept
from shuffler.inclusion import Inclusions

Users = list[list[bytes]]
"""Of each user the sealed reports, in the order of arrival."""
Tampering = Callable[["DishonestShuffler", Users], Users]
"""Gives what goes into the batch in place of what came."""

_KEPT_SECONDS = 1e6


class DishonestShuffler:
    """Takes submissions and gives receipts as an honest one; its batch is up to a tampering."""

    def __init__(
        self,
        *,
        path: Path,
        analyzer: AnalyzerCore,
        signed: SignedTask,
        key: HpkePrivateKey,
        clock: StillClock,
        rng: np.random.Generator,
    ) -> None:
        self._analyzer = analyzer
        self._signed = signed
        self._key = key
        self._rng = rng
        self.task = Task.from_bytes(signed.task_bytes)
        self.digest = signed.digest()
        self.identity = SigningIdentity.generate()
        self.users: Users = []
        self.shuffles = True
        self.forges = False
        self.delivered: list[bytes] = []
        """What left it last."""
        self._inclusions = Inclusions(
            directory=path,
            identity=analyzer.keys.identity.public_identity(),
            keep_seconds=_KEPT_SECONDS,
            clock=clock,
        )

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:  # noqa: ARG002  # it has one
        """Give the task."""
        return self._signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG002  # as a shuffler that asks for none
        """Open an envelope, and give a receipt."""
        submission = unpack(self._key.open(envelope, envelope_context(digest)), self.task)
        self.users.append(pieces(submission.sealed_reports, self.task.sealed_report_bytes))
        return sign_receipt(self.identity, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Show what an honest one would, or that everybody was counted, by its own signature."""
        if self.forges:
            return self._forged(prefix)
        relayed, _ = await self._inclusions.relay(digest, prefix)
        if isinstance(relayed, InclusionProof):
            return relayed
        return InclusionProof(commitment=relayed, bucket=b"", path=())

    def _forged(self, prefix: int | None) -> InclusionProof:
        """Sign for all that came, in the analyzer's place and with another key than its own."""
        salt, came = bytes(SALT_BYTES), b"".join(report for user in self.users for report in user)
        tree = Tree.over(bytearray(leaves_of(came, self.task.sealed_report_bytes)), salt)
        batch_id = manifest_of(self.digest, 0, 0).batch_id
        signed = BatchCommitment.sign(self.identity, self.digest, batch_id, tree, salt)
        if prefix is None:
            return InclusionProof(commitment=signed, bucket=b"", path=())
        return InclusionProof.of(tree, signed, prefix)

    def own_submission(self) -> list[bytes]:
        """Make reports up as a user's, and seal them: everybody can."""
        reports = mechanism_of(self.task).dummies(self.task.reports_per_user, self._rng)
        return [self._sealer()(report.tobytes()) for report in reports]

    def batch(self, tampering: Tampering) -> tuple[BatchManifest, list[bytes]]:
        """Make the batch that is delivered, and say of it what an honest one would."""
        users = tampering(self, [list(user) for user in self.users])
        reports = [report for user in users for report in user]
        kept = draw_kept(self.task.shuffler, len(reports), self._rng)
        reports = [report for report, is_kept in zip(reports, kept, strict=True) if is_kept]
        added = draw_item_dummies(self.task.shuffler, self.task.domain_size, self._rng)
        named = plain_reports(np.repeat(np.arange(len(added), dtype=np.int64), added))
        dummies = [self._sealer()(report.tobytes()) for report in named]
        if self.shuffles:
            reports += dummies
            reports = [reports[place] for place in self._rng.permutation(len(reports))]
        else:
            reports += dummies
        return manifest_of(self.digest, len(users), len(reports)), reports

    async def deliver(self, tampering: Tampering) -> None:
        """Deliver a batch, and keep what devices will ask for."""
        manifest, reports = self.batch(tampering)
        commitment = await self._analyzer.take(manifest, reports)
        leaves = bytearray(leaves_of(b"".join(reports), self.task.sealed_report_bytes))
        await self._inclusions.keep(manifest, self.task, commitment, leaves)
        self.delivered = reports

    def copies(self) -> int:
        """Count the reports among those delivered that had come before."""
        return len(self.delivered) - len(set(self.delivered))

    def _sealer(self) -> Callable[[bytes], bytes]:
        key = HpkePublicKey(self.task.suite, self.task.analyzer_key)
        return key.sealer(report_context(self.digest))


def plays_by_the_rules(_: DishonestShuffler, users: Users) -> Users:
    """Change nothing."""
    return users


def drops(*numbers: int) -> Tampering:
    """Lose some users, and say that there were as many fewer."""
    return lambda _, users: [user for place, user in enumerate(users) if place not in numbers]


def replaces(*numbers: int) -> Tampering:
    """Put submissions of its own in some users' places."""

    def tampering(shuffler: DishonestShuffler, users: Users) -> Users:
        for number in numbers:
            users[number] = shuffler.own_submission()
        return users

    return tampering


def duplicates(number: int, *over: int) -> Tampering:
    """Put a user's reports also in others' places."""

    def tampering(_: DishonestShuffler, users: Users) -> Users:
        for other in over:
            users[other] = list(users[number])
        return users

    return tampering


def makes_up(count: int) -> Tampering:
    """Add users that do not exist."""

    def tampering(shuffler: DishonestShuffler, users: Users) -> Users:
        return users + [shuffler.own_submission() for _ in range(count)]

    return tampering
