"""From a batch's counts to its result: what was counted, the estimate, the guarantees. Pure."""

from analyzer.estimation.dispatch import estimate_result
from analyzer.intake import Intake
from common.accounting.guarantees import guarantees, published_claim
from common.errors import UnusableBatchError
from common.mechanisms.base import Mixture, Randomizer
from common.messages.batch import BatchManifest
from common.messages.result import Result
from common.task.task import Task


def build_result(
    manifest: BatchManifest, task: Task, randomizer: Randomizer, intake: Intake
) -> Result:
    """
    Make the result of a batch from its counts. Pure; the times are for the caller to fill in.

    The number of users' dummies that came is known where nothing was refused: all reports but
    users' own and null ones. How many the shuffler added, and how many reports it kept, is never
    known but by their law. What refused reports are taken for, `mixture_of` says; the guarantee
    takes every one for another honest user's.

    Null reports fill submissions up to the task's largest number of dummies. More of them than the
    law leaves room for (none, where the number is fixed) stand where a report should: malformed.

    Raises:
        UnusableBatchError: No report could be counted.
    """
    if intake.counted == 0:
        raise UnusableBatchError(
            f"none of the batch's {manifest.n_reports} reports could be counted"
        )
    room = manifest.n_users * (task.dummies.maximum - task.dummies.per_user)
    padding = min(intake.null, room)
    refused = dict(intake.refused)
    refused["malformed"] += intake.null - padding
    n_refused = sum(refused.values())
    mixture = mixture_of(
        task, manifest.n_users, counted=intake.counted, padding=padding, refused=n_refused
    )
    return Result(
        task_digest=manifest.task_digest,
        protocol=task.protocol,
        mechanism=task.mechanism.name,
        buckets=task.item_mechanism.buckets if task.kind == "categorical" else 0,
        local_epsilon=task.local_epsilon,
        n_users=manifest.n_users,
        n_reports=manifest.n_reports,
        n_dummies=round(max(0.0, intake.counted - mixture.n_real * mixture.kept)),
        refused=refused,
        estimate=estimate_result(task, randomizer, intake.cells, mixture),
        guarantees=guarantees(task, manifest.n_users, n_refused),
        published_claim=published_claim(task, manifest.n_users, n_refused),
        open_seconds=0.0,
        estimate_seconds=0.0,
    )


def mixture_of(
    task: Task, n_users: int, *, counted: int, padding: int = 0, refused: int = 0
) -> Mixture:
    """
    Say what the counted reports are. Pure.

    Where the shuffler adds dummies, every refused report is a user's: an honest shuffler's are
    never refused. Otherwise users' own reports are taken to be left in proportion: as large a share
    of them as of all reports, and the others that were counted are dummies.

    Args:
        task: Whose batch it is.
        n_users: Of the batch.
        counted: Reports that were counted.
        padding: Null reports that stand where they may.
        refused: Reports that were not counted for any other cause.
    """
    shuffler, dummies = task.shuffler, task.dummies
    if not shuffler.idle:
        mean, spread = shuffler.moments()
        return Mixture(
            n_real=max(1.0, n_users - refused / shuffler.kept),
            kept=shuffler.kept,
            item_mean=mean,
            item_variance=spread,
        )
    accepted = counted + padding
    n_real = min(n_users * accepted / max(1, accepted + refused), counted)
    n_dummies = counted - n_real
    if dummies.uniform:
        return Mixture(n_real=n_real, n_dummies=n_dummies)
    # How many there are in all is known, so that an item's number varies less than by itself.
    chance, known = dummies.extra_chance, 1 - 1 / task.domain_size
    return Mixture(
        n_real=n_real,
        item_mean=n_dummies / task.domain_size,
        item_variance=n_real * chance * (1 - chance) * known,
    )
