"""Batches that the analyzer receives, checked against their tasks and the budgets."""

import operator
from dataclasses import dataclass

from analyzer.count_job import CountJob
from analyzer.registry import Registry
from common.errors import (
    AccountingError,
    BudgetError,
    DamagedStorageError,
    LedgerError,
    TaskError,
    WireError,
)
from common.messages.batch import BatchManifest
from common.receiving.receiver import Receiver
from common.task.task import Task


@dataclass(kw_only=True)
class Staging(Receiver[CountJob]):
    """Stages batches until they are released."""

    registry: Registry

    def check_manifest(self, manifest: BatchManifest, task: Task) -> None:
        """Raise WireError for fewer than n_min users, or numbers that contradict the task."""
        if manifest.n_users < task.n_min:
            raise WireError(
                f"the batch has {manifest.n_users} users; the task needs at least {task.n_min}"
            )
        by_length = manifest.by_length or (manifest.n_users,)
        if len(by_length) != len(task.lengths):
            raise WireError(
                f"submissions of {len(by_length)} lengths are announced; the task has "
                f"{len(task.lengths)}"
            )
        if sum(by_length) != manifest.n_users:
            raise WireError(
                f"{sum(by_length)} submissions of {manifest.n_users} users are announced"
            )
        minimum, maximum = task.batch_reports(sum(map(operator.mul, task.lengths, by_length)))
        if not minimum <= manifest.n_reports <= maximum:
            allowed = str(maximum) if minimum == maximum else f"{minimum} to {maximum}"
            raise WireError(
                f"{manifest.n_reports} reports are announced; a batch of {manifest.n_users} users "
                f"must have {allowed}"
            )

    async def admit(self, manifest: BatchManifest, task: Task) -> None:
        """
        Check that the budgets suffice even if every report counts; else mark the batch unusable.

        Raises:
            BudgetError: The release would exceed the population's privacy budget.
            AccountingError: No guarantee exists for the batch's number of users.
            DamagedStorageError: The ledger cannot be read; the shuffler retries after that error.

        Cost: that of `ReleaseBudgets.check`.
        """
        try:
            await self.registry.budgets.check(task, manifest.n_users, manifest.task_digest)
        except (TaskError, LedgerError) as error:
            raise DamagedStorageError(
                f"the analyzer cannot read its own storage: {error}"
            ) from error
        except (BudgetError, AccountingError) as error:
            await self.registry.store.mark_unusable(manifest, str(error))
            self.registry.metrics.record_unusable(manifest.task_digest, quarantined=False)
            raise
