"""What the scenarios over a rehearsal have in common: to play it, and to see what came of it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import numpy as np

from common.errors import ShuffleDpError, UnusableBatchError
from common.messages.result import RefusalCause, Result
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Heading
from deploy.audit.integrity.known_limit import known_limit
from deploy.audit.integrity.rehearsal import Rehearsal, quietly
from deploy.audit.integrity.rehearsed import rehearsed

Rows = tuple[Finding, ...]
Play = Callable[[Task, np.random.Generator], Coroutine[Any, Any, Rows]]

NONE_REFUSED: Final[dict[RefusalCause, int]] = {"repeated": 0, "unreadable": 0, "malformed": 0}


def played(play: Play, audited: Audited, rng: np.random.Generator) -> Rows:
    """Play a rehearsal of the audited task; nothing where it has too many reports for that."""
    task = rehearsed(audited.task_bytes)
    if task is None:
        return ()
    with quietly():
        return asyncio.run(play(task, rng))


async def released(rehearsal: Rehearsal, digest: TaskDigest | None = None) -> Result | None:
    """Give what was released, of the rehearsed task or another; None if it was held back."""
    try:
        return await rehearsal.analyzer.result(digest or rehearsal.shuffler.digest)
    except UnusableBatchError:
        return None


async def refused(call: Coroutine[Any, Any, object], cause: type[Exception]) -> bool:
    """Say whether a call is refused, and for this cause."""
    try:
        await call
    except cause:
        return True
    except ShuffleDpError:
        return False
    return False


async def taken(call: Coroutine[Any, Any, object]) -> bool:
    """Say whether a call is not refused, for any cause."""
    return not await refused(call, ShuffleDpError)


def unsuspected(result: Result | None) -> bool:
    """Say whether a batch was released and no figure of its result tells of an attack."""
    return result is not None and result.refused == NONE_REFUSED


def noticed(
    checks: Checks,
    *,
    scenario: str,
    title: str,
    sentence: str,
    heading: Heading = "server disruption",
    coalition: str = "shuffler",
) -> Finding:
    """Make the row of what a defence must notice."""
    return checks.finding(
        scenario=scenario, title=title, heading=heading, coalition=coalition, sentence=sentence
    )


def unnoticed(
    checks: Checks,
    *,
    scenario: str,
    title: str,
    sentence: str,
    **fields: Any,  # noqa: ANN401  # of a Finding
) -> Finding:
    """Make the row of what nobody notices; if somebody did, it would be known wrongly."""
    return known_limit(
        checks.finding(
            scenario=scenario,
            title=title,
            heading="server disruption",
            coalition="shuffler",
            sentence=sentence,
            **fields,
        )
    )
