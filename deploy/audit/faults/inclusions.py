"""Faults of what is signed, kept, shown and asked of a batch, and of what a device tells of it."""

import dataclasses
import sqlite3
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

import common.crypto.merkle
import common.mechanisms.base
import common.messages.inclusion_proof
import shuffler.inclusion
import user_agent.budget
import user_agent.inclusion_monitor
from common.crypto.merkle import HASH_BYTES, split
from common.crypto.signing import PublicIdentity
from common.errors import ShuffleDpError, ValueRangeError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.runtime import logs
from common.task.shuffler_spec import KEEP_SUM
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from deploy.audit.stand_ins.still_clock import StillClock
from shuffler.inclusion import Inclusions
from user_agent.agent import Agent
from user_agent.contribution import Answer, Contributor
from user_agent.credentials import TokenFile
from user_agent.inclusion_monitor import MOST_ASKED, Watch

_OTHERS_SIGNED: Final = "analyzer signed other reports than were sent"
_LONG: Final = 1_000


def commitments_of_any_task() -> AbstractContextManager[None]:
    """Plant devices that believe what the analyzer signed of whatever task."""
    honest = BatchCommitment.check

    def other(self: BatchCommitment, identity: PublicIdentity, _: TaskDigest) -> None:
        honest(self, identity, self.task_digest)

    return planting.attribute(BatchCommitment, "check", other)


def any_depth() -> AbstractContextManager[None]:
    """Plant devices that ask for buckets of a tree of any depth."""
    honest = BatchCommitment.check

    def other(self: BatchCommitment, identity: PublicIdentity, digest: TaskDigest) -> None:
        with planting.attribute(common.messages.inclusion_proof, "bits_for", lambda _: self.bits):
            honest(self, identity, digest)

    return planting.attribute(BatchCommitment, "check", other)


def two_commitments() -> AbstractContextManager[None]:
    """Plant devices that take a proof under another commitment than they were shown first."""
    honest = user_agent.inclusion_monitor.counted

    def other(
        leaf: bytes,
        proof: InclusionProof,
        _: BatchCommitment,
        identity: PublicIdentity,
        digest: TaskDigest,
    ) -> bool:
        return honest(leaf, proof, proof.commitment, identity, digest)

    return planting.function(honest, other)


def narrow_buckets() -> AbstractContextManager[None]:
    """Plant trees so deep that a bucket holds hardly more than a leaf."""
    return planting.attribute(common.crypto.merkle, "BUCKET_LEAVES", 1)


def proofs_of_own_length() -> AbstractContextManager[None]:
    """Plant a shuffler whose answers are as long as the bucket that was asked for."""
    honest = Inclusions.relay

    async def other(self: Inclusions, digest: TaskDigest, prefix: int | None) -> Any:
        relayed, room = await honest(self, digest, prefix)
        if isinstance(relayed, InclusionProof):
            room = len(relayed.bucket) // HASH_BYTES
        return relayed, room

    return planting.attribute(Inclusions, "relay", other)


def sampled_asked() -> AbstractContextManager[None]:
    """Plant devices that ask for reports which the shuffler may have dropped."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        return dataclasses.replace(honest(self, value, rng), sampled=False)

    return planting.attribute(Contributor, "answer", other)


def sampled_kept() -> AbstractContextManager[None]:
    """Plant a shuffler that keeps which reports of a task it did not drop."""
    honest = Inclusions.keep

    async def other(
        self: Inclusions,
        manifest: BatchManifest,
        task: Task,
        commitment: BatchCommitment | None,
        leaves: bytearray,
    ) -> None:
        whole = dataclasses.replace(task.shuffler, keep_weight=KEEP_SUM)
        await honest(self, manifest, dataclasses.replace(task, shuffler=whole), commitment, leaves)

    return planting.attribute(Inclusions, "keep", other)


def asked_at_once() -> AbstractContextManager[None]:
    """Plant devices that ask about an answer as soon as it has arrived."""
    honest = Watch.check_due

    async def other(self: Watch) -> None:
        for evidence in await self._budget.unchecked():
            self._not_before.setdefault((evidence.person, evidence.task_digest), 0.0)
        await honest(self)

    return planting.attribute(Watch, "check_due", other)


def given_up_early() -> AbstractContextManager[None]:
    """Plant devices that wait for a proof until two weeks before the deadline."""
    patience = user_agent.inclusion_monitor._PATIENCE_SECONDS
    return planting.attribute(user_agent.inclusion_monitor, "_PATIENCE_SECONDS", -patience)


def others_signed_unseen() -> AbstractContextManager[None]:
    """Plant a shuffler that compares batches, and not what is in them."""
    keep, report = Inclusions.keep, shuffler.inclusion._report

    def silent(event: str, manifest: BatchManifest, level: Any) -> None:
        if event != _OTHERS_SIGNED:
            report(event, manifest, level)

    async def other(
        self: Inclusions,
        manifest: BatchManifest,
        task: Task,
        commitment: BatchCommitment | None,
        leaves: bytearray,
    ) -> None:
        same = commitment is not None and commitment.batch_id == manifest.batch_id
        with planting.attribute(shuffler.inclusion, "_report", silent if same else report):
            await keep(self, manifest, task, commitment, leaves)

    return planting.attribute(Inclusions, "keep", other)


def hashes_for_ever() -> AbstractContextManager[None]:
    """Plant a shuffler that keeps hashes a thousand times as long as is said."""
    honest = Inclusions.forget

    def other(self: Inclusions) -> None:
        clock = self._clock
        self._clock = StillClock(clock.now() - _LONG * self._keep_seconds)
        try:
            honest(self)
        finally:
            self._clock = clock

    return planting.attribute(Inclusions, "forget", other)


def forgetting_not_begun() -> AbstractContextManager[None]:
    """Plant a shuffler that never looks whether hashes have been kept for long enough."""

    async def other(_: Inclusions) -> None:
        """Do nothing."""

    return planting.attribute(Inclusions, "keep_forgetting", other)


def first_ones_asked() -> AbstractContextManager[None]:
    """Plant devices that ask for the first of their reports, in their order."""
    honest = user_agent.inclusion_monitor.to_ask
    return planting.function(honest, lambda leaves, _: split(leaves)[:MOST_ASKED])


def unpinned_verified() -> AbstractContextManager[None]:
    """Plant devices that tell a receipt to be verified which they had nothing to verify by."""
    honest = Agent._verify

    def other(self: Agent, saved: Any, receipt: bytes) -> bool:
        return self._shuffler_identity is None or honest(self, saved, receipt)

    return planting.attribute(Agent, "_verify", other)


def person_logged() -> AbstractContextManager[None]:
    """Plant devices that log for whom an answer could not be sent."""

    async def other(self: Agent) -> None:
        for saved in await self._budget.pending():
            try:
                await self._send(saved)
            except ShuffleDpError:
                logs.event("submission not sent", {"state": saved.person}, level="WARNING")

    return planting.attribute(Agent, "resend_pending", other)


def tokens_of_others() -> AbstractContextManager[None]:
    """Plant devices that show a token without a name for everybody."""

    def other(self: TokenFile, person: str) -> bytes:
        found = b""
        for number, line in self._lines():
            digits, _, name = line.partition(" ")
            if not person or name.strip() in {"", person}:
                found = self._read(digits, number)
        return found

    return planting.attribute(TokenFile, "token", other)


def value_repeated() -> AbstractContextManager[None]:
    """Plant devices whose refusal of a value repeats it."""
    honest = common.mechanisms.base.check_value

    def other(value: int, domain_size: int) -> None:
        try:
            honest(value, domain_size)
        except ValueRangeError as error:
            raise ValueRangeError(f"{error}; {value} was given") from None

    return planting.function(honest, other)


def earlier_answers_free() -> AbstractContextManager[None]:
    """Plant an upgrade after which what was answered before costs nothing."""
    honest = user_agent.budget._add_columns

    def other(connection: sqlite3.Connection) -> None:
        before = connection.execute("PRAGMA table_info(submissions)").fetchall()
        honest(connection)
        if connection.execute("PRAGMA table_info(submissions)").fetchall() != before:
            with connection:
                connection.execute("UPDATE submissions SET central_epsilon = 0")

    return planting.function(honest, other)


INCLUSIONS: Final = (
    Fault(
        name="commitment-any-task",
        says="devices believe what the analyzer signed of another task",
        scenario="proofs",
        check="of one task is not believed of another",
        plant=commitments_of_any_task,
    ),
    Fault(
        name="bucket-of-any-task",
        says="devices ask for buckets of another task's batch",
        scenario="device-rules",
        check="of another task is asked for no bucket",
        plant=commitments_of_any_task,
    ),
    Fault(
        name="bits-unchecked",
        says="devices believe a tree of any depth that the analyzer signed",
        scenario="proofs",
        check="not believed of another depth",
        plant=any_depth,
    ),
    Fault(
        name="bucket-of-any-depth",
        says="devices ask for buckets of a tree of any depth",
        scenario="device-rules",
        check="of another depth is asked for no bucket",
        plant=any_depth,
    ),
    Fault(
        name="two-commitments",
        says="a device takes a proof under another commitment than it was shown first",
        scenario="device-rules",
        check="nothing is concluded where commitments to another tree",
        plant=two_commitments,
    ),
    Fault(
        name="narrow-buckets",
        says="a bucket holds hardly more than the leaf that is asked for",
        scenario="proofs",
        check="no deeper than leaves its buckets large",
        plant=narrow_buckets,
    ),
    Fault(
        name="proof-unpadded",
        says="the length of an answer tells which bucket was asked for",
        scenario="proofs",
        check="an answer has one length whichever bucket",
        plant=proofs_of_own_length,
    ),
    Fault(
        name="sampled-asked",
        says="devices ask for reports which the shuffler may have dropped",
        scenario="device-rules",
        check="a device keeps no leaves, and asks nothing",
        plant=sampled_asked,
    ),
    Fault(
        name="sampled-leaves-kept",
        says="the shuffler keeps which reports it did not drop",
        scenario="proofs",
        check="no hashes of a task that lets it drop reports",
        plant=sampled_kept,
    ),
    Fault(
        name="asks-at-once",
        says="devices ask about an answer as soon as it has arrived",
        scenario="device-rules",
        check="a device that starts asks nothing at once",
        plant=asked_at_once,
    ),
    Fault(
        name="unproven-early",
        says="devices wait for no proof after the deadline",
        scenario="device-rules",
        check="asked about for a fortnight",
        plant=given_up_early,
    ),
    Fault(
        name="other-signed-unseen",
        says="the shuffler does not notice that other reports were signed than it sent",
        scenario="proofs",
        check="an analyzer that signs other reports",
        plant=others_signed_unseen,
    ),
    Fault(
        name="inclusion-for-ever",
        says="the shuffler keeps hashes of what it sent for ever",
        scenario="proofs",
        check="are deleted after that",
        plant=hashes_for_ever,
    ),
    Fault(
        name="forgetting-not-begun",
        says="the shuffler never looks whether hashes have been kept for long enough",
        scenario="services",
        check="kept for long enough are deleted",
        plant=forgetting_not_begun,
    ),
    Fault(
        name="own-order-asked",
        says="of many reports devices ask for the same ones each time",
        scenario="proofs",
        check="it draws each time which",
        plant=first_ones_asked,
    ),
    Fault(
        name="unpinned-verified",
        says="a device tells any receipt to be verified",
        scenario="device-rules",
        check="no receipt is told to be verified",
        plant=unpinned_verified,
    ),
    Fault(
        name="person-in-log",
        says="a device logs for whom an answer could not be sent",
        scenario="device-rules",
        check="no line names a person",
        plant=person_logged,
    ),
    Fault(
        name="token-others",
        says="a device shows one person's token for another",
        scenario="secrets",
        check="for the person whose name stands behind it",
        plant=tokens_of_others,
    ),
    Fault(
        name="value-in-error",
        says="a device repeats a value that it refuses",
        scenario="device-rules",
        check="stands in no error and no line",
        plant=value_repeated,
    ),
    Fault(
        name="upgrade-free",
        says="after an upgrade earlier answers cost nothing against the analyzer",
        scenario="device-rules",
        check="before an upgrade counts with its local",
        plant=earlier_answers_free,
    ),
)
