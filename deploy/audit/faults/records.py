"""Faults of what is written down: the ledger, budgets, signatures, and what becomes of a batch."""

import asyncio
import dataclasses
import math
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import analyzer.budgets
import analyzer.staging
import analyzer.storage.store
from analyzer.batch_checks import judge, judge_refusals
from analyzer.budgets import Spent
from analyzer.estimation import dispatch as of_every_kind
from analyzer.estimation.histogram import estimate
from analyzer.finalize import mixture_of
from analyzer.intake import Intake
from analyzer.release import Releases
from analyzer.sentinel_matching import Sightings
from analyzer.storage import ledger
from analyzer.storage.store import Store
from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.errors import LedgerError
from common.mechanisms.base import Counts, Mechanism, Mixture
from common.messages.batch import BatchManifest
from common.messages.estimate import Histogram
from common.messages.inclusion_proof import BatchCommitment
from common.messages.ledger_entry import ChainHead, LedgerEntry, verify
from common.messages.result import Result
from common.task.task import Task
from common.wire.results import result_to_wire
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault

_FEW: Final = 8
"""Releases to a population that are remembered."""
_BEGINNING: Final = 256
"""Bytes of a task."""
_ENOUGH: Final = 5
"""Sentinels from which on a batch is judged by them."""


def users_not_hashed() -> AbstractContextManager[None]:
    """Plant a ledger whose hashes leave out how many users and refused reports there were."""
    honest = LedgerEntry.fields

    def other(self: LedgerEntry) -> dict[str, Any]:
        fields = honest(self)
        return {name: fields[name] for name in fields if name not in {"n_users", "n_refused"}}

    return planting.attribute(LedgerEntry, "fields", other)


def chain_unfollowed() -> AbstractContextManager[None]:
    """Plant a walk through the ledger that looks at each entry by itself."""

    def other(entries: Iterable[LedgerEntry], head: ChainHead | None = None) -> ChainHead:
        head = head or ChainHead()
        for entry in entries:
            if entry.entry != head.entry + 1 or entry.entry_hash != entry.expected_hash():
                raise LedgerError(f"the ledger is broken at entry {entry.entry}")
            head = ChainHead(entry=entry.entry, entry_hash=entry.entry_hash)
        return head

    return planting.function(verify, other)


def releases_not_looked_for() -> AbstractContextManager[None]:
    """Plant a start that does not look for releases which the ledger does not hold."""

    def other(connection: sqlite3.Connection) -> ChainHead:
        return verify(ledger._entries(connection))

    return planting.function(ledger.check, other)


def few_releases_found() -> AbstractContextManager[None]:
    """Plant a ledger that gives a population's first eight releases."""
    honest = ledger.entries_of

    def other(connection: sqlite3.Connection, population: str) -> list[LedgerEntry]:
        return honest(connection, population)[:_FEW]

    return planting.function(honest, other)


def newest_delta() -> AbstractContextManager[None]:
    """Plant an analyzer that judges every budget at the newest task's δ."""
    honest = analyzer.budgets._require

    def other(together: Sequence[Spent]) -> None:
        delta = together[-1].budget_delta
        honest([dataclasses.replace(one, budget_delta=delta) for one in together])

    return planting.function(honest, other)


def infinite_left_out() -> AbstractContextManager[None]:
    """Plant an analyzer that composes only releases of which something is certified."""
    honest = Store.releases_to

    async def other(self: Store, population: str) -> list[LedgerEntry]:
        return [one for one in await honest(self, population) if one.epsilon < math.inf]

    return planting.attribute(Store, "releases_to", other)


def charged_apart() -> AbstractContextManager[None]:
    """Plant an analyzer in which each release has a lock of its own until it is charged."""
    honest = Releases._charge_and_release

    async def other(self: Releases, *arguments: Any) -> None:
        self._charging = asyncio.Lock()
        await honest(self, *arguments)

    return planting.attribute(Releases, "_charge_and_release", other)


def given_up_taken_again() -> AbstractContextManager[None]:
    """Plant an analyzer that takes another batch in the place of one that it has given up."""
    honest = analyzer.storage.store._give_up

    def other(connection: sqlite3.Connection, manifest: BatchManifest, failure: str) -> None:
        honest(connection, manifest, failure)
        digest = (manifest.task_digest,)
        connection.execute("UPDATE batches SET staged = 0 WHERE task_digest = ?", digest)
        connection.execute("DELETE FROM commitments WHERE task_digest = ?", digest)

    return planting.function(honest, other)


def refusals_unjudged() -> AbstractContextManager[None]:
    """Plant an analyzer that never objects to refused reports."""
    return planting.function(judge_refusals, lambda *_: None)


def few_sentinels_unjudged() -> AbstractContextManager[None]:
    """Plant an analyzer that judges by five sentinels or more."""

    def other(sightings: Sightings, task: Task) -> None:
        if sightings.n_acknowledged >= _ENOUGH:
            judge(sightings, task)

    return planting.function(judge, other)


def no_sentinel_missing() -> AbstractContextManager[None]:
    """Plant results that say no sentinel is missing."""
    honest = Releases._charge_and_release

    async def other(
        self: Releases, manifest: BatchManifest, task: Task, intake: Intake, result: Result
    ) -> None:
        await honest(
            self, manifest, task, intake, dataclasses.replace(result, n_sentinels_missing=0)
        )

    return planting.attribute(Releases, "_charge_and_release", other)


def _refused_among_users(*, idle: bool) -> AbstractContextManager[None]:
    """Take refused reports for reports that are there, beside one kind of dummies."""

    def other(task: Task, n_users: int, *, refused: int = 0, **named: int) -> Mixture:
        kept = refused if task.shuffler.idle is not idle else 0
        return mixture_of(task, n_users, refused=kept, **named)

    return planting.function(mixture_of, other)


def refused_beside_dummies() -> AbstractContextManager[None]:
    """Plant an estimate that counts refused users, where users add the dummies."""
    return _refused_among_users(idle=True)


def refused_of_sampled() -> AbstractContextManager[None]:
    """Plant an estimate that counts refused users, where the shuffler adds the dummies."""
    return _refused_among_users(idle=False)


def one_refinement() -> AbstractContextManager[None]:
    """Plant an analyzer that refines every result by norm-sub."""

    def other(mechanism: Mechanism, cells: Counts, mixture: Mixture, **_: Any) -> Histogram:
        return estimate(mechanism, cells, mixture, "norm-sub")

    return planting.attribute(of_every_kind, "estimate", other)


def fewer_reports_taken() -> AbstractContextManager[None]:
    """Plant an analyzer that takes fewer reports than belong to the users of a batch."""
    honest = analyzer.staging._check_manifest

    def other(manifest: BatchManifest, task: Task) -> None:
        least, _ = task.batch_reports(manifest.n_users)
        honest(dataclasses.replace(manifest, n_reports=max(least, manifest.n_reports)), task)

    return planting.function(honest, other)


def first_bytes_signed() -> AbstractContextManager[None]:
    """Plant identities that sign the first 256 bytes of a task, and check those."""
    sign, verify_all = SigningIdentity.sign, PublicIdentity.verify

    def signs(self: SigningIdentity, task_bytes: bytes) -> SignedTask:
        beginning = sign(self, task_bytes[:_BEGINNING])
        return dataclasses.replace(beginning, task_bytes=task_bytes)

    def verifies(self: PublicIdentity, signed: SignedTask) -> None:
        beginning = dataclasses.replace(signed, task_bytes=signed.task_bytes[:_BEGINNING])
        verify_all(self, beginning)

    return planting.both(
        planting.attribute(SigningIdentity, "sign", signs),
        planting.attribute(PublicIdentity, "verify", verifies),
    )


def root_not_signed() -> AbstractContextManager[None]:
    """Plant commitments whose signature is not about their root."""
    honest = BatchCommitment._message

    def other(self: BatchCommitment) -> bytes:
        return honest(dataclasses.replace(self, root=bytes(len(self.root))))

    return planting.attribute(BatchCommitment, "_message", other)


def no_assumptions_told() -> AbstractContextManager[None]:
    """Plant results that go out without what their guarantees assume, and between whom."""
    honest = result_to_wire

    def other(result: Result) -> Any:
        bare = tuple(
            dataclasses.replace(one, assumptions=(), neighbouring="") for one in result.guarantees
        )
        return honest(dataclasses.replace(result, guarantees=bare))

    return planting.function(honest, other)


RECORDS: Final = (
    Fault(
        name="users-not-hashed",
        says="an entry's hash leaves out how many users and refused reports there were",
        scenario="analyzer-ledger",
        check="altered, in its n_users",
        plant=users_not_hashed,
    ),
    Fault(
        name="chain-unfollowed",
        says="each entry of the ledger is looked at by itself",
        scenario="analyzer-ledger",
        check="an entry was replaced, with its hash",
        plant=chain_unfollowed,
    ),
    Fault(
        name="releases-not-looked-for",
        says="nobody looks for releases that the ledger does not hold",
        scenario="analyzer-ledger",
        check="lacks the last release",
        plant=releases_not_looked_for,
    ),
    Fault(
        name="few-releases-found",
        says="a population's first eight releases are composed, and no later one",
        scenario="analyzer-budgets",
        check="charged with all 20 before it",
        plant=few_releases_found,
    ),
    Fault(
        name="newest-delta",
        says="every budget is judged at the newest task's delta",
        scenario="analyzer-budgets",
        check="an earlier task's budget at that one's δ",
        plant=newest_delta,
    ),
    Fault(
        name="infinite-left-out",
        says="releases of which nothing is certified are not composed",
        scenario="analyzer-budgets",
        check="after a release of which nothing is certified",
        plant=infinite_left_out,
    ),
    Fault(
        name="charged-apart",
        says="two releases are composed before either is charged",
        scenario="analyzer-budgets",
        check="composed at once, one is charged",
        plant=charged_apart,
    ),
    Fault(
        name="given-up-taken-again",
        says="a task whose batch was given up takes another one",
        scenario="analyzer-releases",
        check="takes no other",
        plant=given_up_taken_again,
    ),
    Fault(
        name="refusals-unjudged",
        says="however many reports were refused, a batch is released",
        scenario="analyzer-releases",
        check="one refused report more than may be",
        plant=refusals_unjudged,
    ),
    Fault(
        name="few-sentinels-unjudged",
        says="a batch is judged by five sentinels or more, and by no fewer",
        scenario="analyzer-releases",
        check="lacks its only sentinel",
        plant=few_sentinels_unjudged,
    ),
    Fault(
        name="no-sentinel-missing",
        says="a result says that no sentinel is missing",
        scenario="analyzer-releases",
        check="how many sentinels are missing",
        plant=no_sentinel_missing,
    ),
    Fault(
        name="refused-beside-dummies",
        says="refused reports count as users' where users add dummies",
        scenario="analyzer-releases",
        check="mixdump: users whose reports were refused",
        plant=refused_beside_dummies,
    ),
    Fault(
        name="refused-of-sampled",
        says="refused reports count as users' where the shuffler adds dummies",
        scenario="analyzer-releases",
        check="sbin: users whose reports were refused",
        plant=refused_of_sampled,
    ),
    Fault(
        name="one-refinement",
        says="every result is refined by norm-sub",
        scenario="analyzer-releases",
        check="refined by ems, as its task says",
        plant=one_refinement,
    ),
    Fault(
        name="fewer-reports-taken",
        says="fewer reports than belong to the users are taken",
        scenario="shuffler-injects",
        check="fewer reports than belong to so many users",
        plant=fewer_reports_taken,
    ),
    Fault(
        name="first-bytes-signed",
        says="a signature is about the first 256 bytes of a task",
        scenario="proofs",
        check="a task changed anywhere is not believed",
        plant=first_bytes_signed,
    ),
    Fault(
        name="root-not-signed",
        says="what is signed of a batch leaves its root out",
        scenario="proofs",
        check="with another root",
        plant=root_not_signed,
    ),
    Fault(
        name="no-assumptions-told",
        says="results go out without what their guarantees assume",
        scenario="services",
        check="are those of the users who came",
        plant=no_assumptions_told,
    ),
)
