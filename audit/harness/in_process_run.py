"""Run one collection in this process: devices, sentinels, analyzer and dishonest shuffler."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.harness.party_cores import InProcessAnalyzer, InProcessShuffler
from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.signing import KeyUse, SigningIdentity, sign_receipt, signed_key
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.inclusion_proof import BatchCommitment, InclusionProof
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import SUBMISSION_ID_BYTES
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.sentinels.planting import SentinelRun
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.core import Agent
from shuffledp.user_agent.credentials import PersonalSecrets
from shuffledp.user_agent.device_store import DeviceStore, InclusionState
from shuffledp.user_agent.policy import Policy

Users = list[bytes]
"""Envelope of each user, in arrival order."""
Tampering = Callable[["DishonestShuffler", Users], Users]
"""Returns the users to deliver instead of those who submitted."""

BATCH: Final = BatchId(b"x" * 16)
_PAUSE: Final = 10.0
"""Seconds between two inclusion checks of a device."""


class DishonestShuffler(InProcessShuffler):
    """Acknowledges submissions, and then collects and delivers a tampered list of them."""

    analyzer: InProcessAnalyzer

    def __init__(self, path: Path, **ports: Any) -> None:  # noqa: ANN401  # those of a shuffler
        super().__init__(path, **ports)
        self.users: Users = []
        self.forges = False
        """Whether it returns inclusion proofs that it signed itself."""
        self.delivered: list[bytes] = []
        """Sealed reports, as the analyzer received them."""

    @property
    def digest(self) -> TaskDigest:
        """Digest of the task published last."""
        return self.analyzer.signed.digest()

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Keep an envelope, and return a receipt; after the delivery, try to store it."""
        if self.delivered:
            await self.collection.submit(digest, envelope, token)
        self.users.append(envelope)
        return sign_receipt(self.identity, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Return the stored proof or, with `forges`, sign one of all submitted reports."""
        if not self.forges:
            return await super().inclusion(digest, prefix)
        prefix, salt = prefix or 0, bytes(inclusion_proof.SALT_BYTES)
        reports = b"".join(self.reports_of(self.users))
        leaves = inclusion_proof.leaves_of(reports, self.analyzer.task.sealed_report_bytes)
        tree, buckets = inclusion_proof.tree_over(leaves, salt)
        signed = BatchCommitment.sign(self.identity, digest, BATCH, tree, salt)
        bucket = buckets[prefix].tobytes()
        return InclusionProof(commitment=signed, bucket=bucket, path=tree.path(prefix))

    def invented_user(self) -> bytes:
        """Prepare the envelope of an invented user, who answers like an honest one."""
        contributor = Contributor(self.analyzer.task, self.digest)
        return contributor.prepare(value_of(self.analyzer.task, 0), self.rng).envelope

    def copy_of(self, user: bytes) -> bytes:
        """Seal a user's reports into an envelope with another id."""
        key = hpke.HpkePublicKey(self.analyzer.task.suite, self.analyzer.task.shuffler_key)
        copied = self.rng.bytes(SUBMISSION_ID_BYTES) + b"".join(self.reports_of([user]))
        return key.sealer(hpke.envelope_context(self.digest))(copied)

    def reports_of(self, users: Users) -> list[bytes]:
        """Return the sealed reports of some users."""
        task, context = self.analyzer.task, hpke.envelope_context(self.digest)
        key = self.keys.private_key(task.suite, task.shuffler_key, whose="shuffler_key")
        sealed = [split_submission(key.open(user, context))[1] for user in users]
        return hpke.split_every(b"".join(sealed), task.sealed_report_bytes)

    def manifest(self, users: Users, n_reports: int, batch: BatchId = BATCH) -> BatchManifest:
        """Return a manifest for the task."""
        numbers = Counter(len(self.reports_of([user])) for user in users)
        return BatchManifest(
            task_digest=self.digest,
            batch_id=batch,
            n_users=len(users),
            n_reports=n_reports,
            by_length=tuple(numbers[length] for length in self.analyzer.task.lengths),
        )

    async def deliver(self, tampering: Tampering) -> None:
        """Deliver a tampered batch, and wait for the release."""
        for user in tampering(self, [*self.users]):
            await self.collection.submit(self.digest, user)
        await self.collection.close(self.digest)
        await self.deliveries.advance()
        self.delivered = hpke.split_every(
            self.analyzer.delivered, self.analyzer.task.sealed_report_bytes
        )
        await self.analyzer.settle()


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
    return lambda shuffler, users: [
        shuffler.copy_of(users[number]) if n in copies else user for n, user in enumerate(users)
    ]


def invents(count: int) -> Tampering:
    """Add `count` invented users."""
    return lambda shuffler, users: users + [shuffler.invented_user() for _ in range(count)]


@contextmanager
def quiet_services() -> Iterator[None]:
    """Disable the logs of services in this process, and enable them again."""
    logger = logging.getLogger("shuffledp")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


class Device(Agent):
    """A user agent's core for several persons, with a clock of its own and no privacy caps."""

    clock: ManualClock

    def __init__(self, pinned: Mapping[str, Any], **ports: Any) -> None:  # noqa: ANN401
        caps: Any = {
            each.name: math.inf for each in fields(Policy) if each.name.endswith("epsilon_cap")
        }
        policy = Policy(
            **pinned,
            **caps,
            allow_tasks_without_tokens=True,
            total_delta_cap=0.9,
            lasting_responses=True,
        )
        super().__init__(
            policy=policy,
            several_persons=True,
            clock=ManualClock(),
            secrets=PersonalSecrets(bytes(32)),
            check_seconds=_PAUSE,
            **ports,
        )

    async def check(self, times: int) -> None:
        """Run inclusion checks, the first of which only schedules the second."""
        for _ in range(times):
            await self.monitor.check_due()
            self.clock.seconds += 2 * _PAUSE


class InProcessRun:
    """
    The parties, with files in an empty directory; `seed` determines reports and orders.

    Subclasses replace parts by faulty ones, and so do other types of parties.
    """

    def __init__(
        self,
        path: Path,
        *,
        seed: int = 1,
        shuffler_type: type[DishonestShuffler] = DishonestShuffler,
        analyzer_type: type[InProcessAnalyzer] = InProcessAnalyzer,
    ) -> None:
        self.path, self._shuffler_type = path, shuffler_type
        self.analyzer = analyzer_type(path / "analyzer")
        self._rng = np.random.default_rng(seed)

    async def start(self, draft: TaskDraft) -> None:
        """Start the parties, and publish a draft under a new shuffler key."""
        await self.analyzer.start()
        pinned, identity = self.analyzer.keys.identity.public_identity(), SigningIdentity.generate()
        self.shuffler = self._shuffler_type(
            self.path / "shuffler", analyzer=self.analyzer, pinned=pinned, identity=identity
        )
        self.shuffler.rng = np.random.default_rng(int(self._rng.integers(2**63)))
        await self.shuffler.start()
        await self.publish(draft)
        self.digest = self.analyzer.signed.digest()
        self.store = DeviceStore(self.path / "budget.sqlite")
        identities = {"analyzer_identity": pinned, "shuffler_identity": identity.public_identity()}
        self.agent = Device(identities, shuffler=self.shuffler, store=self.store, rng=self._rng)

    async def publish(self, draft: TaskDraft) -> None:
        """Publish a draft under the shuffler's key."""
        own, identity = self.shuffler.keys.public_key(draft.suite), self.shuffler.identity
        key = signed_key(identity, KeyUse.ENVELOPES, own, MAX_UNIX_TIME)
        await self.analyzer.publish(replace(draft, shuffler_key=key))

    async def contribute(self, values: Sequence[int]) -> None:
        """Submit one item each for `person 0`, `person 1`, …"""
        for number, item in enumerate(values):
            value = value_of(self.analyzer.task, item)
            await self.agent.contribute(self.digest, value, f"person {number}")

    async def plant(self, count: int) -> None:
        """Plant sentinels in order, as an operator does."""
        planting = SentinelRun(
            digest=self.digest,
            analyzer=cast("OperatorClient", self.analyzer.registry),
            connect=lambda: nullcontext(self.shuffler),
            file=self.path / "sentinels.json",
            rng=self._rng,
        )
        await planting.plant(count, over=0.0)

    async def deliver(self, manifest: BatchManifest, reports: list[bytes]) -> None:
        """Deliver a batch, and wait until it is released or rejected."""
        await self.analyzer.deliver_parts(manifest, reports)
        await self.analyzer.settle()

    async def inclusions(self, n_users: int) -> list[InclusionState]:
        """Run the inclusion checks, and return the conclusions for `person 0`, `person 1`, …"""
        await self.agent.check(2)
        names = [f"person {number}" for number in range(n_users)]
        found = [await self.store.find(name, self.digest) for name in names]
        return [answer.inclusion for answer in found if answer is not None]

    async def stop(self) -> None:
        """Stop the parties."""
        self.store.close()
        self.shuffler.store.close()
        await self.analyzer.stop()
