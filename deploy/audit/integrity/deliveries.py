"""An honest delivery; and some that are not shuffled, come again, or hold users that are none."""

from typing import Final

import numpy as np

from common.errors import ConflictError as BatchConflictError
from common.errors import WireError as ManifestError
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.integrity.analyzer_core import manifest_of
from deploy.audit.integrity.detection_rates import of_order
from deploy.audit.integrity.dishonest_shuffler import drops, makes_up, plays_by_the_rules
from deploy.audit.integrity.playthrough import (
    NONE_REFUSED,
    Rows,
    noticed,
    played,
    refused,
    released,
    unnoticed,
    unsuspected,
)
from deploy.audit.integrity.rehearsal import Rehearsal
from deploy.audit.integrity.rehearsed import SENTINELS, people
from user_agent.evidence import Inclusion

_ORDER: Final = "shuffler-keeps-order"
_MADE_UP: Final = 5
_SECOND: Final = b"s" * 16
_OTHERS: Final = b"o" * 16
"""Batch ids."""


def honest(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Nothing is wrong, and nobody says so."""
    return Outcome(findings=played(_honest, audited, rng))


def keeping_the_order(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Submissions are delivered as they came."""
    rows = () if audited.task.shuffler.kept < 1 else played(_in_order, audited, rng)
    return Outcome(findings=(*rows, *of_order(_ORDER, audited.task, rng)))


def replaying(audited: Audited, rng: np.random.Generator) -> Outcome:
    """A batch is delivered again, to its own task and to another one."""
    return Outcome(findings=played(_replayed, audited, rng))


def injecting(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Users are made up, and the numbers of a batch are wrong."""
    return Outcome(findings=played(_injected, audited, rng))


async def _honest(task: Task, rng: np.random.Generator) -> Rows:
    checks, kept = Checks(), task.shuffler.kept
    async with Rehearsal.begun(task, rng, sentinels=True) as rehearsal:
        await rehearsal.shuffler.deliver(plays_by_the_rules)
        result = await released(rehearsal)
        seen = await rehearsal.seen_by_devices()
    checks.must("its batch is released", result is not None)
    if result is not None:
        checks.must("no report is refused", result.refused == NONE_REFUSED)
        checks.must("sentinels do not count as users", result.n_users == people(task))
        checks.must("the analyzer knows of every sentinel", result.n_sentinels == SENTINELS)
        checks.must("it misses none", kept < 1 or result.n_sentinels_missing == 0)
    wanted = Inclusion.COUNTED if kept == 1 else Inclusion.SAMPLED
    checks.must("no device raises an alarm", seen == {wanted: people(task)})
    return (
        noticed(
            checks,
            scenario="honest-shuffler",
            title=f"{people(task)} people and {SENTINELS} sentinels, played through",
            sentence="Where the shuffler is honest everybody is counted and nobody raises an "
            "alarm.",
            heading="correctness",
            coalition="nobody",
        ),
    )


async def _in_order(task: Task, rng: np.random.Generator) -> Rows:
    checks, unseen = Checks(), Checks()
    async with Rehearsal.begun(task, rng, sentinels=True) as rehearsal:
        rehearsal.shuffler.shuffles = False
        await rehearsal.shuffler.deliver(plays_by_the_rules)
        checks.must(
            "a batch in the order of arrival is not released", await released(rehearsal) is None
        )
    async with Rehearsal.begun(task, rng) as rehearsal:
        rehearsal.shuffler.shuffles = False
        await rehearsal.shuffler.deliver(plays_by_the_rules)
        result = await released(rehearsal)
        seen = await rehearsal.seen_by_devices()
    unseen.must("the batch is released, and no figure of it tells", unsuspected(result))
    unseen.must("no device can tell", seen == {Inclusion.COUNTED: people(task)})
    return (
        noticed(
            checks,
            scenario=_ORDER,
            title=f"Not shuffled, with {SENTINELS} sentinels",
            sentence="The analyzer does not release a batch whose sentinels stand as they were "
            "sent.",
        ),
        unnoticed(
            unseen,
            scenario=_ORDER,
            title="Not shuffled, without sentinels",
            sentence="Without sentinels nobody notices that a batch was not shuffled, and whoever "
            "knows the order of arrival knows whose report is whose.",
            advice="Plant sixteen sentinels or more in every batch.",
        ),
    )


async def _replayed(task: Task, rng: np.random.Generator) -> Rows:
    checks = Checks()
    async with Rehearsal.begun(task, rng) as rehearsal:
        shuffler, analyzer = rehearsal.shuffler, rehearsal.analyzer
        await shuffler.deliver(plays_by_the_rules)
        first, reports = await released(rehearsal), shuffler.delivered
        kept = await analyzer.store.result(shuffler.digest)
        n_users, n_reports = people(task), len(reports)
        await analyzer.take(manifest_of(shuffler.digest, n_users, n_reports), reports)
        await released(rehearsal)
        checks.must(
            "the same batch again changes nothing",
            first is not None and await analyzer.store.result(shuffler.digest) == kept,
        )
        _, more = task.batch_reports(n_users + 1)
        renumbered = manifest_of(shuffler.digest, n_users + 1, more)
        checks.must(
            "the same batch under another manifest is refused",
            await refused(analyzer.take(renumbered, reports), BatchConflictError),
        )
        second = manifest_of(shuffler.digest, n_users, n_reports, _SECOND)
        checks.must(
            "a second batch of a task is refused",
            await refused(analyzer.take(second, reports), BatchConflictError),
        )
        other = await analyzer.publish(task, shuffler.task.shuffler_key, rng)
        await analyzer.take(manifest_of(other.digest(), n_users, n_reports, _OTHERS), reports)
        elsewhere = await released(rehearsal, other.digest())
        checks.must("reports of one task are none of another", elsewhere is None)
        charged = await analyzer.store.ledger(0)
        checks.must("the ledger is charged once", len(charged) == 1)
    return (
        noticed(
            checks,
            scenario="shuffler-replays",
            title="A batch again, as another batch, and for another task",
            sentence="A batch counts once, and for its own task only, however often it is "
            "delivered.",
        ),
    )


async def _injected(task: Task, rng: np.random.Generator) -> Rows:
    checks, unseen = Checks(), Checks()
    async with Rehearsal.begun(task, rng) as rehearsal:
        shuffler, analyzer, n = rehearsal.shuffler, rehearsal.analyzer, rehearsal.n_people
        least, most = task.batch_reports(n)
        _, reports = shuffler.batch(plays_by_the_rules)
        crowded = reports + reports[:1] * (most + 1 - len(reports))
        for name, announced in (("belong to so many users", most + 1), ("were announced", most)):
            manifest = manifest_of(shuffler.digest, n, announced)
            checks.must(
                f"more reports than {name} are refused",
                await refused(analyzer.take(manifest, crowded), ManifestError),
            )
        for name, announced in (("belong to so many users", least - 1), ("were announced", least)):
            manifest = manifest_of(shuffler.digest, n, announced)
            checks.must(
                f"fewer reports than {name} are refused",
                await refused(analyzer.take(manifest, reports[: least - 1]), ManifestError),
            )
        manifest, theirs = shuffler.batch(drops(*range(n - task.n_min + 1)))
        checks.must(
            "a batch below n_min is refused",
            await refused(analyzer.take(manifest, theirs), ManifestError),
        )
        checks.must("none of them is charged", not await analyzer.store.ledger(0))
    async with Rehearsal.begun(task, rng) as rehearsal:
        await rehearsal.shuffler.deliver(makes_up(_MADE_UP))
        result = await released(rehearsal)
    unseen.must("the batch is released, and no figure of it tells", unsuspected(result))
    unseen.must(
        "those made up count as users",
        result is not None and result.n_users == people(task) + _MADE_UP,
    )
    return (
        noticed(
            checks,
            scenario="shuffler-injects",
            title="More reports than belong to the users or fewer, and too few users",
            sentence="The analyzer takes no more reports than belong to the users announced, no "
            "fewer, and no batch below n_min.",
        ),
        unnoticed(
            unseen,
            scenario="shuffler-injects",
            title=f"{_MADE_UP} users made up beside {people(task)} people",
            sentence="Nobody notices users whom the shuffler makes up, and the guarantee against "
            "the analyzer takes them for honest ones.",
            advice="State a smaller assumed_honest_fraction, and compare the number of users with "
            "how many were asked.",
            expected=float(people(task) + _MADE_UP),
            measured=None if result is None else float(result.n_users),
        ),
    )
