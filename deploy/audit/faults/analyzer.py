"""Faults of the analyzer: budgets, charges, what it takes in, estimates and refinements."""

import dataclasses
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

import analyzer.budgets
import analyzer.storage.store
from analyzer.batch_checks import judge
from analyzer.budgets import Spending, Spent
from analyzer.deduplication import Repeats
from analyzer.estimation.em import maximise_likelihood
from analyzer.estimation.histogram import estimate
from analyzer.estimation.projection import norm_sub
from analyzer.finalize import conclude
from analyzer.intake import Intake
from analyzer.sentinel_matching import Sightings, look
from analyzer.staging import StagedHash, Staging
from analyzer.storage import ledger
from analyzer.storage.ledger import Charge
from analyzer.storage.store import Store
from common.accounting import guarantees as coalitions
from common.accounting.guarantees import guarantees, published_claim
from common.mechanisms.base import Mechanism, Vector
from common.messages.batch import BatchManifest
from common.messages.estimate import Histogram
from common.messages.guarantee import Guarantee
from common.messages.ledger_entry import ChainHead
from common.messages.result import Result
from common.sorted_index import SortedIndex
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.faults import planting

_REMEMBERED: Final = 4
"""Chunks after which repeats are forgotten."""


async def _unasked(
    self: Spending, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None = None
) -> float:
    """Compose what a release costs, and do not ask whether there is a budget for it."""
    together = await self._together(task, n_users, n_refused, digest)
    return analyzer.budgets._compose(together, task.budget_delta)


def budget_when_published() -> AbstractContextManager[None]:
    """Plant an analyzer that asks for a budget when a task is published, and never again."""
    honest = Spending.require

    async def require(
        self: Spending, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None = None
    ) -> None:
        if digest is None:
            await honest(self, task, n_users, n_refused)

    return planting.both(
        planting.attribute(Spending, "require", require),
        planting.attribute(Spending, "compose", _unasked),
    )


def budget_when_delivered() -> AbstractContextManager[None]:
    """Plant an analyzer that asks for a budget before a batch is opened, and not for the charge."""
    honest = analyzer.budgets._require

    def alone(together: Sequence[Spent]) -> None:
        honest(together[-1:])

    return planting.both(
        planting.attribute(Spending, "compose", _unasked),
        planting.function(analyzer.budgets._require, alone),
    )


def newest_budget() -> AbstractContextManager[None]:
    """Plant an analyzer that keeps the newest task's budget, and no earlier one's."""
    honest = analyzer.budgets._require

    def other(together: Sequence[Spent]) -> None:
        last = together[-1]
        honest(
            [
                dataclasses.replace(
                    one, budget_epsilon=last.budget_epsilon, budget_delta=last.budget_delta
                )
                for one in together
            ]
        )

    return planting.function(honest, other)


def last_release_only() -> AbstractContextManager[None]:
    """Plant an analyzer that composes a release with the one before, and with no earlier one."""
    honest = Spending._together

    async def other(self: Spending, *arguments: Any) -> list[Spent]:
        return (await honest(self, *arguments))[-2:]

    return planting.attribute(Spending, "_together", other)


def ledger_unverified() -> AbstractContextManager[None]:
    """Plant an analyzer that starts on any ledger."""

    async def other(_: Store) -> ChainHead:
        return ChainHead()

    return planting.attribute(Store, "check_ledger", other)


def charged_later() -> AbstractContextManager[None]:
    """Plant an analyzer that keeps a result first, and charges for it when that is done."""

    def keep(
        connection: sqlite3.Connection, manifest: BatchManifest, cells: bytes, result: bytes
    ) -> None:
        row = (manifest.task_digest, cells, result)
        connection.execute("INSERT INTO results VALUES (?, ?, ?)", row)

    async def other(
        self: Store, manifest: BatchManifest, cells: bytes, result: bytes, cost: Charge
    ) -> None:
        await self._database.run(keep, manifest, cells, result)
        await self._database.run(ledger.charge, manifest, cost)

    return planting.attribute(Store, "release", other)


def any_padding() -> AbstractContextManager[None]:
    """Plant an analyzer that takes any number of null reports for padding."""

    def other(manifest: BatchManifest, task: Task, mechanism: Mechanism, intake: Intake) -> Result:
        room = manifest.n_users * (task.dummies.maximum - task.dummies.per_user)
        fewer = dataclasses.replace(intake, null=min(intake.null, room))
        return conclude(manifest, task, mechanism, fewer)

    return planting.function(conclude, other)


def unconfirmed_sentinels() -> AbstractContextManager[None]:
    """Plant an analyzer that takes sentinels for users until they are confirmed."""
    return planting.attribute(
        Sightings, "n_users", lambda self, *, sampled: self.n_acknowledged + 0 * sampled
    )


def sampling_unjudged() -> AbstractContextManager[None]:
    """Plant an analyzer that lets a shuffler that samples do anything with sentinels."""

    def other(sightings: Sightings, task: Task) -> None:
        if task.shuffler.kept == 1:
            judge(sightings, task)

    return planting.function(judge, other)


def sentinel_copies() -> AbstractContextManager[None]:
    """Plant an analyzer that does not notice copies of sentinels."""

    def other(*arguments: Any) -> Sightings:
        return dataclasses.replace(look(*arguments), n_repeated=0)

    return planting.function(look, other)


def half_the_errors() -> AbstractContextManager[None]:
    """Plant an analyzer that publishes half the standard errors."""

    def other(*arguments: Any, **named: Any) -> Histogram:
        histogram = estimate(*arguments, **named)
        return dataclasses.replace(histogram, standard_errors=histogram.standard_errors / 2)

    return planting.function(estimate, other)


def uniform_refinement() -> AbstractContextManager[None]:
    """Plant a maximisation that never leaves where it begins."""

    def other(_: Any, __: Any, domain_size: int, **___: Any) -> Vector:
        return np.full(domain_size, 1 / domain_size)

    return planting.function(maximise_likelihood, other)


def blunt_projection() -> AbstractContextManager[None]:
    """Plant a projection that gives a thousandth away to all items."""

    def other(shares: Vector) -> Vector:
        return 0.999 * norm_sub(shares) + 0.001 / len(shares)

    return planting.function(norm_sub, other)


def early_salt() -> AbstractContextManager[None]:
    """Plant an analyzer that draws the salt of a batch before its reports come."""
    honest = Staging._stage

    class Drawn:
        """Gives what was drawn before."""

        def __init__(self, drawn: bytes) -> None:
            self._drawn = drawn

        def bytes(self, length: int) -> bytes:
            """Give it."""
            return self._drawn[:length]

    async def other(
        self: Staging, manifest: BatchManifest, task: Task, chunks: AsyncIterator[bytes]
    ) -> None:
        rng: Any = self._rng
        planted: Any = Drawn(rng.bytes(64))
        self._rng = planted
        try:
            await honest(self, manifest, task, chunks)
        finally:
            self._rng = rng

    return planting.attribute(Staging, "_stage", other)


def repeats_forgotten() -> AbstractContextManager[None]:
    """Plant an analyzer that remembers the reports of a few chunks."""
    honest = Repeats.without

    def other(self: Any, chunk: bytes) -> bytes:
        self.chunks = getattr(self, "chunks", 0) + 1
        if self.chunks % _REMEMBERED == 0:
            self._seen = SortedIndex()
        return honest(self, chunk)

    return planting.attribute(Repeats, "without", other)


def claim_for_more_users() -> AbstractContextManager[None]:
    """Plant a result that says what a paper claims for a thousand times the users."""

    def other(task: Task, n_users: int, n_refused: int) -> str:
        return published_claim(task, 1000 * n_users, n_refused)

    return planting.function(published_claim, other)


def damage_unseen() -> AbstractContextManager[None]:
    """Plant an analyzer that never compares what the disk gives back with what was staged."""
    return planting.attribute(StagedHash, "check", lambda *_: None)


def any_manifest() -> AbstractContextManager[None]:
    """Plant an analyzer that knows a batch by its id alone."""
    honest: Any = analyzer.storage.store._begin_batch

    def other(connection: sqlite3.Connection, manifest: BatchManifest) -> bool:
        known = connection.execute(
            "SELECT 1 FROM batches WHERE batch_id = ? AND staged", (manifest.batch_id,)
        ).fetchone()
        return False if known else bool(honest(connection, manifest))

    return planting.function(honest, other)


def refusals_halved() -> AbstractContextManager[None]:
    """Plant a result whose guarantees count half of the refused reports."""

    def other(task: Task, n_users: int, n_refused: int) -> tuple[Guarantee, ...]:
        return guarantees(task, n_users, n_refused // 2)

    return planting.function(guarantees, other)


def no_word_of_both() -> AbstractContextManager[None]:
    """Plant a result that does not say what holds against shuffler and analyzer together."""
    return planting.function(coalitions._against_shuffler_and_analyzer, lambda _: [])
