"""A load run as a command asks for it: find the target, seal or read the users, run."""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from common.errors import PlanError, SettingsError
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from common.task.draft import TaskDraft
from common.task_digest import TaskDigest
from deploy.clients.analyzer import OperatorClient
from deploy.clients.base import read_authority
from deploy.clients.shuffler import ShufflerClient
from deploy.datasets.catalogue import IPUMS_1940_CITY
from deploy.datasets.choice import dataset
from deploy.load import prepared_file, sealing
from deploy.load.behaviour import assign, expected_answers
from deploy.load.connection import Destination
from deploy.load.plan import Crowd, LoadPlan
from deploy.load.prepared_file import Prepared
from deploy.load.progress import Bars
from deploy.load.run import Finished, run
from deploy.load.target import Target, TargetKind, fetch, for_nobody, local, nobody, wanted
from deploy.load.usage import remote_source

DEFAULT_USERS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Running services: where they are, and what their operators' files are."""

    shuffler: str
    authority: Path | None = None
    digest: TaskDigest | None = None
    """None for the task of a replayed file."""
    analyzer: str | None = None
    """Where the result is read; None where nobody waits for it."""
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    shuffler_token_file: Path | None = None
    """Of who may close a batch, sees what it refused, and that nobody is in it."""
    are_mine: bool = False
    """Whoever asks says that they run these services, and has not that token to show it."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Pages by party."""

    def __post_init__(self) -> None:
        if (self.analyzer is None) != (self.token_file is None):
            raise PlanError("a result is read with --analyzer and --token-file together")

    @asynccontextmanager
    async def target(self, digest: TaskDigest) -> AsyncIterator[Target]:
        """Connect, and fetch the task."""
        authority = None if self.authority is None else read_authority(self.authority)
        to = Destination(address=self.shuffler, authority=authority)
        async with AsyncExitStack() as stack:
            operator = None
            if self.analyzer is not None and self.token_file is not None:
                operator = await stack.enter_async_context(
                    OperatorClient.connect(
                        self.analyzer, self.authority, self.token_file, self.certificate, self.key
                    )
                )
            shuffler = None
            if self.shuffler_token_file is not None:
                shuffler = await stack.enter_async_context(
                    ShufflerClient.connect(self.shuffler, self.authority, self.shuffler_token_file)
                )
            yield Target(
                kind="services",
                to=to,
                signed=await fetch(to, digest),
                source=remote_source(self.metrics) if self.metrics else None,
                parties=tuple(self.metrics),
                operator=operator,
                shuffler=shuffler,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a command asks for."""

    kind: TargetKind
    plan: LoadPlan
    crowd: Crowd | None
    """None for the users of a replayed file."""
    dataset_name: str = IPUMS_1940_CITY
    draft: Path | None = None
    remote: Remote | None = None
    prepare: Path | None = None
    """Seal to there, and send nothing."""
    replay: Path | None = None
    close: bool = False

    def __post_init__(self) -> None:
        if self.prepare is not None and self.kind != "services":
            raise PlanError("--prepare seals for a task of running services: name TASK, --shuffler")
        if self.replay is not None and self.kind == "local":
            raise PlanError(
                "--local publishes a task of its own, with new keys: nothing that was sealed "
                "before fits it"
            )
        if self.prepare is not None and self.replay is not None:
            raise PlanError("give --prepare or --replay, not both")
        if (self.crowd is None) != (self.replay is not None):
            raise PlanError("who the users are stands in the file that is replayed")
        if self.draft is not None and self.kind == "services":
            raise PlanError("--draft is for --local and --sink; running services have their task")
        if self.kind == "services":
            self._check_consent()

    def _check_consent(self) -> None:
        """Check that whoever runs the services wants this: any device knows enough to send."""
        token = None if self.remote is None else self.remote.shuffler_token_file
        if self.close and token is None:
            raise PlanError("--close needs --shuffler-token-file")
        is_theirs = token is not None or (self.remote is not None and self.remote.are_mine)
        if self.prepare is None and not is_theirs:
            raise PlanError(
                "simulated users spoil a real collection, and only whoever runs the services may "
                "send them: give --shuffler-token-file, or say --i-run-these-services"
            )


async def execute(job: Job, bars: Bars) -> Finished | None:
    """
    Do it.

    Returns:
        What came of it; None if users were only prepared.

    Raises:
        PlanError: The shuffler tells its operator that the batch no longer collects, or that users
            are in it.
        ShuffleDpError: What `run` raises; a file is none; a service does not answer, or refuses.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shuffledp-load-")))
        replayed = None if job.replay is None else prepared_file.read(job.replay)
        target = await stack.enter_async_context(_target(job, replayed, folder))
        if job.prepare is None:
            await _check_nobody_is_in(target)  # sealing may take long, and would be for nothing
        if replayed is not None:
            if target.signed.digest() != replayed.signed.digest():
                raise SettingsError(f"{job.replay} was prepared for another task")
            prepared = replayed
        else:
            prepared = _seal(job, target, folder, bars)
            if job.prepare is not None:
                return None
        await _check_nobody_is_in(target)  # somebody may have come meanwhile
        return await run(job.plan, target, prepared, bars, close=job.close or _ends_early(job))


def _seal(job: Job, target: Target, folder: Path, bars: Bars) -> Prepared:
    """Seal everything before anything is sent, so that sealing takes no time from sending."""
    if job.crowd is None:
        raise PlanError("nobody says who the users are")
    path = job.prepare or folder / "users"
    bars.begins("Sealing", job.crowd.n_users)
    sealing.prepare(
        path,
        target.signed,
        crowd=job.crowd,
        dataset_name=job.dataset_name,
        seed=job.plan.seed,
        progress=bars.advance,
    )
    return prepared_file.read(path)


async def _check_nobody_is_in(target: Target) -> None:
    """Check that no collection of others would be spoiled, where the shuffler tells."""
    if target.kind != "services" or target.shuffler is None:
        return
    batch = await target.shuffler.progress(target.signed.digest())
    if batch.state is not BatchState.COLLECTING:
        raise PlanError(f"the batch is {batch.state.value}; it must be collecting")
    if batch.n_users:
        raise PlanError(
            f"the batch holds {batch.n_users} users; it must hold 0, for simulated users would "
            "spoil their collection: publish a task of its own"
        )


def _ends_early(job: Job) -> bool:
    """Say whether the batch has to be closed here: a ramp may leave users unsent."""
    return job.kind == "local" and job.plan.ramp is not None


@asynccontextmanager
async def _target(job: Job, replayed: Prepared | None, folder: Path) -> AsyncIterator[Target]:
    if job.kind == "services":
        async with _services(job, replayed) as target:
            yield target
    elif job.kind == "local":
        async with local(folder / "services", partial(_draft, job)) as target:
            yield target
    else:
        signed = for_nobody(partial(_draft, job)) if replayed is None else replayed.signed
        async with nobody(signed) as target:
            yield target


def _draft(job: Job, key: bytes) -> TaskDraft:
    if job.crowd is None:
        raise PlanError("nobody says who the users are")
    # The same draws as those of `sealing.prepare`: the same numbers, in the same places.
    kinds = assign(job.crowd.n_users, job.crowd.shares, np.random.default_rng(job.plan.seed))
    stored = expected_answers(kinds)[Outcome.STORED]
    size = dataset(job.dataset_name, stored).domain_size if job.draft is None else 0
    return wanted(job.draft, size, stored, ends_early=_ends_early(job), key=key)


@asynccontextmanager
async def _services(job: Job, replayed: Prepared | None) -> AsyncIterator[Target]:
    remote = job.remote
    if remote is None:
        raise PlanError("nobody says where the services are")
    digest = remote.digest
    if digest is None and replayed is not None:
        digest = replayed.signed.digest()
    if digest is None:
        raise PlanError("name the task: its digest")
    async with remote.target(digest) as target:
        yield target
