"""Run one collection in this process: devices, sentinels, analyzer and dishonest shuffler."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import Generator

from audit.harness.analyzer_core import InProcessAnalyzer
from audit.harness.clock import ManualClock
from common.crypto import hpke
from common.crypto.hpke import HpkePrivateKey
from common.crypto.signing import SignedTask, SigningIdentity, sign_receipt, signed_envelope_key
from common.errors import BatchStateError, ProofError
from common.limits import MAX_UNIX_TIME
from common.mechanisms.base import Reports
from common.mechanisms.registry import mechanism_of
from common.messages import inclusion_proof
from common.messages.batch import BatchId, BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.messages.submission import plain_reports, split_submission
from common.task.draft import TaskDraft
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.tasks.value_parser import value_of
from shuffler.collection import check_length
from user_agent.agent import Agent
from user_agent.contribution import Contributor
from user_agent.credentials import PersonalSecrets
from user_agent.device_store import DeviceStore, InclusionState
from user_agent.policy import Policy

Users = list[list[bytes]]
"""Sealed reports of each user, in arrival order."""
Tampering = Callable[["DishonestShuffler", Users], Users]
"""Returns the users to deliver instead of those who submitted."""

BATCH: Final = BatchId(b"x" * 16)
_PAUSE: Final = 10.0
"""Seconds between two inclusion checks of a device."""


@dataclass(eq=False, repr=False)
class DishonestShuffler:
    """A shuffler that tampers with its batch and is otherwise honest."""

    _analyzer: InProcessAnalyzer
    _key: HpkePrivateKey
    identity: SigningIdentity
    rng: Generator
    users: Users = field(default_factory=list)
    closed: bool = False
    permutes: bool = True
    forges: bool = False
    """Whether it returns inclusion proofs that it signed itself."""
    delivered: list[bytes] = field(default_factory=list)
    """Sealed reports of the last delivery."""
    _committed: BatchCommitment | None = None
    _proofs: dict[bool, list[InclusionProof]] = field(default_factory=dict)
    """Proofs of every bucket, forged or not."""

    @property
    def task(self) -> Task:
        """The task being collected."""
        return self._analyzer.task

    @property
    def digest(self) -> TaskDigest:
        """The task's digest."""
        return self._analyzer.signed.digest()

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:  # noqa: ARG002  # there is only one task
        """Return the task."""
        return self._analyzer.signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG002  # no tokens are required
        """Keep an envelope's reports, and return a receipt; raise BatchStateError if closed."""
        if self.closed:
            raise BatchStateError("the batch is closed")
        check_length(envelope, self.task)
        _, sealed = split_submission(self._key.open(envelope, hpke.envelope_context(digest)))
        self.users.append(hpke.split_every(sealed, self.task.sealed_report_bytes))
        return sign_receipt(self.identity, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:  # noqa: ARG002  # there is only one task
        """Return a bucket's proof, or one without a bucket."""
        if self.forges not in self._proofs:
            self._proofs[self.forges] = self._prove()
        proofs = self._proofs[self.forges]
        if prefix is None:
            return dataclasses.replace(proofs[0], bucket=b"", path=())
        return proofs[prefix]

    def _prove(self) -> list[InclusionProof]:
        """Prove the delivered reports or, with `forges`, sign a proof of all submitted ones."""
        reports, signed, salt = self.delivered, self._committed, bytes(inclusion_proof.SALT_BYTES)
        if self.forges:
            reports = [report for user in self.users for report in user]
        elif signed is None or self.task.shuffler.keep_probability < 1:
            raise ProofError("the batch has not been delivered, or the task samples")
        else:
            salt = signed.salt
        size = self.task.sealed_report_bytes
        leaves = inclusion_proof.leaves_of(b"".join(reports), size)
        tree, buckets = inclusion_proof.tree_over(leaves, salt)
        if self.forges or signed is None:
            signed = BatchCommitment.sign(self.identity, self.digest, BATCH, tree, salt)
        return [
            InclusionProof(commitment=signed, bucket=bucket.tobytes(), path=tree.path(prefix))
            for prefix, bucket in enumerate(buckets)
        ]

    def invented_user(self) -> list[bytes]:
        """Seal the reports of an invented user, as many as an honest user's."""
        chances = self.task.dummies.length_probabilities()
        number = self.rng.choice(self.task.lengths, p=chances / chances.sum())
        return self._sealed(mechanism_of(self.task).dummies(int(number), self.rng))

    def _sealed(self, reports: Reports) -> list[bytes]:
        key = hpke.HpkePublicKey(self.task.suite, self.task.analyzer_key)
        seal = key.sealer(hpke.report_context(self.digest))
        return [seal(report.tobytes()) for report in reports]

    def batch(self, tampering: Tampering) -> tuple[BatchManifest, list[bytes]]:
        """Return manifest and reports of a tampered batch, sampled and permuted like a real one."""
        users = tampering(self, [list(user) for user in self.users])
        reports = [report for user in users for report in user]
        kept = self.task.shuffler.draw_kept(len(reports), self.rng)
        reports = [report for report, is_kept in zip(reports, kept, strict=True) if is_kept]
        added = self.task.shuffler.draw_item_dummies(self.task.domain_size, self.rng)
        dummies = plain_reports(np.repeat(np.arange(len(added), dtype=np.int64), added))
        reports += self._sealed(dummies)
        if self.permutes:
            reports = [reports[place] for place in self.rng.permutation(len(reports))]
        return self.manifest(users, len(reports)), reports

    def manifest(self, users: Users, n_reports: int, batch: BatchId = BATCH) -> BatchManifest:
        """Return a manifest for the task."""
        numbers = Counter(map(len, users))
        return BatchManifest(
            task_digest=self.digest,
            batch_id=batch,
            n_users=len(users),
            n_reports=n_reports,
            by_length=tuple(numbers[length] for length in self.task.lengths),
        )

    async def deliver(self, tampering: Tampering) -> None:
        """Deliver a tampered batch, keep its inclusion proofs, and wait for the release."""
        manifest, reports = self.batch(tampering)
        self._committed = await self._analyzer.deliver_parts(manifest, reports)
        self.delivered, self._proofs = reports, {}
        await self._analyzer.settle()


def drops(*numbers: int) -> Tampering:
    """Drop the users with these indices; the manifest does not count them."""
    return lambda _, users: [user for n, user in enumerate(users) if n not in numbers]


shuffles: Final = drops()
"""Change nothing, like an honest shuffler."""


def replaces(number: int) -> Tampering:
    """Replace the user with this index by an invented user."""
    return lambda shuffler, users: [
        shuffler.invented_user() if n == number else user for n, user in enumerate(users)
    ]


def duplicates(number: int, times: int = 1) -> Tampering:
    """Replace the next `times` users with copies of a user's reports."""
    copies = range(number + 1, number + 1 + times)
    return lambda _, users: [
        list(users[number]) if n in copies else user for n, user in enumerate(users)
    ]


def invents(count: int) -> Tampering:
    """Add `count` invented users."""
    return lambda shuffler, users: users + [shuffler.invented_user() for _ in range(count)]


class InProcessRun:
    """
    The parties, with files in an empty directory; `seed` determines reports and orders.

    Subclasses replace parts by faulty ones.
    """

    shuffler_type: type[DishonestShuffler] = DishonestShuffler
    analyzer_type: type[InProcessAnalyzer] = InProcessAnalyzer
    most_refused_share: float = 0.05
    """The analyzer's default."""

    def __init__(self, path: Path, *, seed: int = 1) -> None:
        self.path = path
        self.analyzer = self.analyzer_type(path / "analyzer")
        self.analyzer.most_refused_share = self.most_refused_share
        self.clock = ManualClock()
        self.n_sentinels = 0
        self._rng = np.random.default_rng(seed)

    async def start(self, draft: TaskDraft) -> None:
        """Start the parties, and publish a draft under a new shuffler key."""
        await self.analyzer.start()
        self.shuffler_key = HpkePrivateKey.generate(draft.suite)
        self.shuffler_identity = SigningIdentity.generate()
        await self.publish(draft)
        self.digest = self.analyzer.signed.digest()
        rng = np.random.default_rng(int(self._rng.integers(2**63)))
        self.shuffler = self.shuffler_type(
            self.analyzer, self.shuffler_key, self.shuffler_identity, rng
        )
        self.store = DeviceStore(self.path / "budget.sqlite")
        self.agent = Agent(  # serves several people, without privacy caps
            shuffler=self.shuffler,
            store=self.store,
            policy=Policy(
                identity=self.analyzer.keys.identity.public_identity(),
                shuffler_identity=self.shuffler_identity.public_identity(),
                allow_tasks_without_tokens=True,
                local_epsilon_cap=math.inf,
                total_local_epsilon_cap=math.inf,
                total_central_epsilon_cap=math.inf,
                total_delta_cap=0.9,
                permanent_responses=True,
            ),
            several_persons=True,
            clock=self.clock,
            rng=self._rng,
            secrets=PersonalSecrets(bytes(32)),
            check_seconds=_PAUSE,
        )

    async def publish(self, draft: TaskDraft) -> None:
        """Publish a draft under the shuffler's key."""
        key = signed_envelope_key(
            self.shuffler_identity, self.shuffler_key.public_key(), MAX_UNIX_TIME
        )
        await self.analyzer.publish(dataclasses.replace(draft, shuffler_key=key))

    async def contribute(self, values: Sequence[int]) -> None:
        """Submit one item each for `person 0`, `person 1`, …"""
        for number, item in enumerate(values):
            value = value_of(self.analyzer.task, item)
            await self.agent.contribute(self.digest, value, f"person {number}")

    async def plant(self, count: int) -> None:
        """Register sentinels, submit them in order, and confirm them."""
        self.n_sentinels += count
        task = self.analyzer.task
        contributor, value = Contributor(task, self.digest), value_of(task, 0)
        sentinels = [contributor.prepare(value, self._rng) for _ in range(count)]
        leaves = [b"".join(sentinel.leaves) for sentinel in sentinels]
        await self.register(leaves, acknowledged=False)
        for sentinel in sentinels:
            await self.shuffler.submit(self.digest, sentinel.envelope)
        await self.register(leaves, acknowledged=True)

    async def register(self, leaves: list[bytes], *, acknowledged: bool) -> None:
        """Tell the analyzer the leaves of sentinels."""
        registry = self.analyzer.registry
        await registry.register_sentinels(self.digest, leaves, acknowledged=acknowledged)

    async def deliver(self, manifest: BatchManifest, reports: list[bytes]) -> None:
        """Deliver a batch, and wait until it is released or rejected."""
        await self.analyzer.deliver_parts(manifest, reports)
        await self.analyzer.settle()

    async def check_inclusions(self) -> None:
        """Run the devices' checks that are due."""
        await self.agent.monitor.check_due()

    async def inclusions(self, n_users: int) -> list[InclusionState]:
        """Run the inclusion checks, and return the conclusions for `person 0`, `person 1`, …"""
        for _ in range(2):  # the first check only schedules the second
            await self.check_inclusions()
            self.clock.seconds += 2 * _PAUSE
        names = [f"person {number}" for number in range(n_users)]
        found = [await self.store.find(name, self.digest) for name in names]
        return [answer.inclusion for answer in found if answer is not None]

    async def stop(self) -> None:
        """Stop the parties."""
        self.store.close()
        await self.analyzer.stop()
