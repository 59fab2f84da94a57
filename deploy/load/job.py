"""A load run as a command asks for it: find the target, seal or load the users, send them."""

import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.errors import SettingsError
from common.task_digest import TaskDigest
from deploy.clients.local_cluster import Cluster
from deploy.load.plan import Crowd, LoadPlan, TargetKind
from deploy.load.report import Bars
from deploy.load.run import Finished, run
from deploy.load.target import (
    RunningServices,
    Target,
    load_draft,
    serving,
    sink,
    unpublished,
)
from deploy.load.users import SealedUsers, seal


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """The checked options of a command."""

    kind: TargetKind
    plan: LoadPlan
    crowd: Crowd
    """The users; ignored where `replay` names a file of them."""
    draft: Path | None = None
    services: RunningServices | None = None
    digest: TaskDigest | None = None
    """The task of running services; None for that of a replayed file."""
    prepare: Path | None = None
    """Seal into this file, and send nothing."""
    replay: Path | None = None
    close: bool = False


async def execute(job: LoadJob, bars: Bars) -> Finished | None:
    """
    Run a job.

    Returns:
        The outcome; None if users were only prepared.

    Raises:
        PlanError: The shuffler's batch no longer collects, or holds users.
        ShuffleDpError: As `run` raises; a file is invalid; a service does not answer, or refuses.
    """
    replayed = None if job.replay is None else SealedUsers.load(job.replay)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shuffledp-load-"))
        target = await _target(job, replayed, Path(folder), stack)
        if replayed is not None and target.signed.digest() != replayed.signed.digest():
            raise SettingsError(f"{job.replay} was prepared for another task")
        if job.prepare is None:
            await target.check_empty()  # sealing may take long, and would be wasted
        users = replayed
        if users is None:
            bars.begins("Sealing", job.crowd.n_users)
            users = seal(target.signed, job.crowd, seed=job.plan.seed, progress=bars.more)
        if job.prepare is not None:
            users.save(job.prepare)
            return None
        await target.check_empty()  # real users may have come meanwhile
        return await run(job.plan, target, users, bars, close=job.close or _ends_early(job))


def _ends_early(job: LoadJob) -> bool:
    """Return whether the batch must be closed here: a ramp may leave users unsent."""
    return job.kind == "local" and job.plan.ramp is not None


async def _target(
    job: LoadJob, replayed: SealedUsers | None, folder: Path, stack: AsyncExitStack
) -> Target:
    """Start or connect the target; the stack ends it."""
    draft = partial(load_draft, job.draft, job.crowd, job.plan.seed, ends_early=_ends_early(job))
    if job.kind == "local":
        cluster = await stack.enter_async_context(Cluster(folder))
        return await stack.enter_async_context(serving(cluster, draft(key=cluster.shuffler_key)))
    if job.kind == "sink":
        signed = unpublished(draft(key=bytes(32))) if replayed is None else replayed.signed
        return await stack.enter_async_context(sink(signed, folder))
    digest = job.digest or (replayed.signed.digest() if replayed else None)
    if job.services is None or digest is None:
        raise SettingsError("running services need their address and a task's digest")
    return await stack.enter_async_context(job.services.connect(digest))
