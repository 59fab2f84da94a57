"""A shuffler that drops, replaces or duplicates: what devices, sentinels and analyzer notice."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.integrity.detection_rates import of_devices, of_repeats, of_sentinels
from deploy.audit.integrity.dishonest_shuffler import Tampering, drops, duplicates, replaces
from deploy.audit.integrity.playthrough import (
    NONE_REFUSED,
    Rows,
    noticed,
    played,
    released,
    unnoticed,
    unsuspected,
)
from deploy.audit.integrity.rehearsal import Rehearsal
from deploy.audit.integrity.rehearsed import people
from user_agent.evidence import Inclusion

_DROPS: Final = "shuffler-drops"
_REPLACES: Final = "shuffler-replaces"
_DUPLICATES: Final = "shuffler-duplicates"
_LOST: Final[Mapping[str, str]] = MappingProxyType({_DROPS: "dropped", _REPLACES: "replaced"})
_VICTIM: Final = 3
_REFUSED_SHARE: Final = 0.05
"""From which on a batch is held back, unless its operator says otherwise."""


def dropping(audited: Audited, rng: np.random.Generator) -> Outcome:
    """A person, or a sentinel, is lost."""
    rows = played(partial(_losing, _DROPS, drops), audited, rng)
    if audited.task.shuffler.kept == 1:
        rows = (*rows, of_devices(_DROPS, rng))
    return Outcome(findings=(*rows, of_sentinels(_DROPS, audited.task, audited.effort, rng)))


def replacing(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Reports of the shuffler's own stand in the place of a person's, or of a sentinel's."""
    return Outcome(findings=played(partial(_losing, _REPLACES, replaces), audited, rng))


def duplicating(audited: Audited, rng: np.random.Generator) -> Outcome:
    """One person's reports stand in the places of others."""
    rows = played(_duplicated, audited, rng)
    return Outcome(findings=(*rows, of_repeats(_DUPLICATES, rng)))


async def _losing(
    scenario: str, lose: Callable[[int], Tampering], task: Task, rng: np.random.Generator
) -> Rows:
    """Lose a person, whose device may check or not; then a sentinel."""
    checks, unseen = Checks(), Checks()
    async with Rehearsal.begun(task, rng) as rehearsal:
        await rehearsal.shuffler.deliver(lose(_VICTIM))
        result = await released(rehearsal)
        rehearsal.shuffler.forges = True
        shown = await rehearsal.seen_by_devices()
        rehearsal.shuffler.forges = False
        seen = await rehearsal.seen_by_devices()
    unseen.must("the batch is released, and no figure of it tells", unsuspected(result))
    if task.shuffler.kept < 1:
        unseen.must("no device asks what it could not learn", set(seen) == {Inclusion.SAMPLED})
        return (
            unnoticed(
                unseen,
                scenario=scenario,
                title=f"One person {_LOST[scenario]}; the task lets the shuffler drop reports",
                sentence="Where the task lets the shuffler drop reports, no device can tell that "
                "its own was lost on purpose.",
                advice="Plant many sentinels: how many are left tells.",
            ),
        )
    checks.must(
        "no device believes what the shuffler signs in the analyzer's place",
        shown == {Inclusion.UNCHECKED: people(task)},
    )
    checks.must("the device concerned has proof of it", seen[Inclusion.MISSING] == 1)
    checks.must("all others are counted", seen[Inclusion.COUNTED] == people(task) - 1)
    async with Rehearsal.begun(task, rng, sentinels=True) as rehearsal:
        await rehearsal.shuffler.deliver(lose(people(task) + _VICTIM))
        checks.must(
            "a batch that lacks a sentinel is not released", await released(rehearsal) is None
        )
    return (
        noticed(
            checks,
            scenario=scenario,
            title=f"One person {_LOST[scenario]}, whose device checks; one sentinel",
            sentence="The person's own device has signed proof of the loss, and the analyzer does "
            "not release a batch that lacks a sentinel.",
        ),
        unnoticed(
            unseen,
            scenario=scenario,
            title=f"One person {_LOST[scenario]}, whose device does not check, and no sentinels",
            sentence="Where no device checks and no sentinel is planted, nobody notices the loss.",
            advice="Let devices pin the shuffler and check, and plant sentinels.",
        ),
    )


async def _duplicated(task: Task, rng: np.random.Generator) -> Rows:
    checks = Checks()
    async with Rehearsal.begun(task, rng) as rehearsal:
        await rehearsal.shuffler.deliver(duplicates(_VICTIM, _VICTIM + 1))
        copies, result = rehearsal.shuffler.copies(), await released(rehearsal)
        seen = await rehearsal.seen_by_devices()
    checks.must(
        "copies are dropped, and told with the result",
        result is not None and result.refused == NONE_REFUSED | {"repeated": copies},
    )
    if task.shuffler.kept == 1:
        checks.must("every report of a submission was copied", copies == task.reports_per_user)
        checks.must("the device whose place they took has proof", seen[Inclusion.MISSING] == 1)
    async with Rehearsal.begun(task, rng) as rehearsal:
        await rehearsal.shuffler.deliver(duplicates(0, *range(1, rehearsal.n_people)))
        copies, sent = rehearsal.shuffler.copies(), len(rehearsal.shuffler.delivered)
        flooded = await released(rehearsal)
    if copies > _REFUSED_SHARE * sent:
        checks.must("a batch of many copies is not released", flooded is None)
    elif flooded is not None:
        checks.must("few copies are dropped too", flooded.refused["repeated"] == copies)
    return (
        noticed(
            checks,
            scenario=_DUPLICATES,
            title="One person's submission in the place of another's, and of everybody's",
            sentence="A report counts once however often it comes, its copies are told with the "
            "result, and a batch of many copies is not released.",
        ),
    )
