"""A load run: find the target, seal or load the users, send them, and compare all counts."""

import asyncio
import math
import multiprocessing
import tempfile
import time
from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Final, Self, TypeVar

import numpy as np

from common.crypto.signing import SignedTask
from common.errors import (
    BatchStateError,
    PeerError,
    PeerRefusalError,
    PlanError,
    SettingsError,
    ShuffleDpError,
)
from common.messages.result import Result
from common.messages.submission import REFUSALS, Outcome, Value
from common.runtime.access import CallKind
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.clients.local_cluster import Cluster
from deploy.load.behaviour import expected_answers
from deploy.load.comparison import compare
from deploy.load.plan import Crowd, LoadPlan, Step, TargetKind, arrivals
from deploy.load.report import Bars, Finished
from deploy.load.sender import Destination, Sender, Tally, run_alone, submissions_of_a_call
from deploy.load.target import Target, load_draft, serving, sink, unpublished
from deploy.load.usage import Meter, own_source
from deploy.load.users import SealedUsers, seal, seal_values

T = TypeVar("T")

RESULT_SECONDS: Final = 1800.0
"""For a closed batch to be permuted, delivered, opened and estimated."""
_PAUSE: Final = 1.0
"""Seconds before a service that does not answer is asked again."""
_PROGRESS_SECONDS: Final = 0.25
_MAX_IN_FLIGHT: Final = 4096
"""Users in flight in an open loop, over all processes; more wait, and their waits count."""
_LEAD_SECONDS: Final = 0.5
"""From dealing users to several processes to the first arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """The checked options of a command."""

    kind: TargetKind
    plan: LoadPlan
    crowd: Crowd
    """The users; ignored where `replay` names a file of them."""
    draft: Path | None = None
    services: Callable[[TaskDigest], AbstractAsyncContextManager[Target]] | None = None
    """Connects to running services."""
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
            bars.start_phase("Sealing", job.crowd.n_users)
            users = seal(target.signed, job.crowd, seed=job.plan.seed, progress=bars.show_more)
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
    return await stack.enter_async_context(job.services(digest))


async def run(
    plan: LoadPlan,
    target: Target,
    users: SealedUsers,
    bars: Bars,
    *,
    close: bool = False,
    result_seconds: float = RESULT_SECONDS,
) -> Finished:
    """
    Send the users, wait for the result if there will be one, and compare all counts.

    The last user, who is honest, comes when all others are through: until then the batch does not
    close, and late submissions would be answered `closed`.

    Args:
        plan: How users arrive.
        target: Where they are sent.
        users: The users.
        bars: Where progress is shown.
        close: Close the batch at the end, if it has not closed by itself.
        result_seconds: Patience for the shuffler's counts, and again for the result.

    Raises:
        PlanError: The batch would close before the last user.
        SettingsError: A process that sends has ended.
    """
    task = Task.from_bytes(users.signed.task_bytes)
    stored = expected_answers(users.kinds)[Outcome.STORED]
    if target.kind != "sink" and stored > task.target_size:
        raise PlanError(
            f"{stored} users would be stored, and the task's target_size is {task.target_size}: "
            "the batch would close before the last of them"
        )
    finished, counts = Finished(plan=plan, target=target), {}
    async with Meter(own_source, *target.sources) as meter:
        try:
            async with _Sending(finished, users, bars) as sending:
                await sending.send()
        except BrokenProcessPool as error:
            raise SettingsError("a process that sends users ended: the run is lost") from error
        kinds = users.kinds[: finished.n_users]
        try:
            counts = await _counts(target, result_seconds)
            came = expected_answers(kinds)[Outcome.STORED]
            finished.result = await _result(finished, came, task, bars, result_seconds, close=close)
        except ShuffleDpError as error:
            finished.failure = error
    if target.kind != "sink":
        finished.rows = compare(kinds, finished.total, counts, finished.result)
    if task.kind == "categorical":
        finished.truth = users.truth(finished.n_users, task.domain_size)
    finished.usage = meter.usage
    finished.notes += [
        f"The usage of {party} is unknown: no metrics page came. --metrics needs the whole "
        "address, such as http://127.0.0.1:9464/metrics."
        for party in target.metered
        if party not in meter.usage
    ]
    return finished


class _Sending:
    """Sends all users, phase by phase: each step of a ramp, or all at one rate; then the last."""

    def __init__(self, finished: Finished, users: SealedUsers, bars: Bars) -> None:
        self._plan = finished.plan
        self._finished = finished
        self._users = users
        self._bars = bars
        self._rng = np.random.default_rng(finished.plan.seed)
        self._bulk = finished.plan.mode == "bulk"
        self._together = submissions_of_a_call(users.envelopes.shape[1]) if self._bulk else 1
        spawn = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, spawn) for _ in range(finished.plan.processes - 1)]

    async def __aenter__(self) -> Self:
        """Start the other processes that send."""
        await asyncio.gather(*(wrap_future(pool.submit(Tally)) for pool in self._pools))
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown()

    async def send(self) -> None:
        """Send them."""
        finished, ramp, others = self._finished, self._plan.ramp, self._users.n_users - 1
        phases = [("Users", others, self._plan.rate)] if others else []
        if ramp is not None:
            steps = zip(ramp.rates, ramp.users, strict=True)
            phases = [(f"{rate:.0f} users a second", count, rate) for rate, count in steps]
        for name, count, rate in phases:
            if (left := others - finished.n_users) < count:
                finished.notes.append(f"The step of {name} needs {count} users; {left} were left.")
                break
            seen = await self._phase(name, count, rate)
            finished.seen.add(seen)
            if ramp is not None and rate is not None:
                step = Step(
                    offered_users=rate,
                    achieved_users=seen.per_second(seen.answered),
                    p99_ms=seen.milliseconds().get("p99", 0.0),
                    failed_attempts=seen.failures.total(),
                    users_given_up=seen.given_up,
                )
                finished.steps.append(step)
                if ramp.broken_by(step) is not None:
                    break
        finished.total.add(finished.seen)
        if finished.n_users == others:
            last = await self._phase("The last user", 1, None)
            finished.total.add(last)
            if not others:
                finished.seen.add(last)

    async def _phase(self, name: str, count: int, rate: float | None) -> Tally:
        """Send the next users at a rate, or in a closed loop, each process its share."""
        plan, first = self._plan, self._finished.n_users
        calls = math.ceil(count / self._together)
        processes = min(plan.processes, calls)
        open_places = CallKind.BULK.value.places if self._bulk else _MAX_IN_FLIGHT
        places = plan.in_flight if rate is None else open_places
        chosen = np.zeros(self._users.n_users, dtype=np.intp)
        chosen[first : first + count] = 1 + np.arange(count) // self._together % processes
        senders = [
            Sender(self._finished.target.to, self._users.part(chosen == 1 + number), plan)
            for number in range(processes)
        ]
        begin, times = time.monotonic(), np.zeros(calls)
        if rate is not None:
            share = calls / count  # calls a user, in bulk
            burst = max(1, round(plan.burst * share)) if plan.pattern == "burst" else None
            begin += _LEAD_SECONDS * (processes > 1)  # for users to reach the other processes
            times = begin + arrivals(calls, rate * share, self._rng, burst=burst)
        self._bars.start_phase(name, int(np.count_nonzero(chosen == 1)))
        schedules = [times[number::processes].tolist() for number in range(processes)]
        each = max(1, places // processes)
        others = [
            wrap_future(pool.submit(run_alone, sender, schedule, each))
            for pool, sender, schedule in zip(self._pools, senders[1:], schedules[1:], strict=False)
        ]
        watching = asyncio.create_task(self._watch(senders[0].tally))
        try:
            tally = await senders[0].run(schedules[0], max(each, places - each * len(others)))
            for other in await asyncio.gather(*others):
                tally.add(other)
        finally:
            watching.cancel()
        if rate is not None:  # a phase takes at least as long as its schedule
            tally.last = max(tally.last, begin + count / rate)
        self._finished.n_users += count
        return tally

    async def _watch(self, tally: Tally) -> None:
        while True:
            self._bars.show_tally(tally)
            await asyncio.sleep(_PROGRESS_SECONDS)


async def _answer(ask: Callable[[], Awaitable[T]], what: str, seconds: float) -> T:
    """Ask until there is an answer: a service that does not answer may be restarting."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with suppress(PeerError):
                    return await ask()
                await asyncio.sleep(_PAUSE)
    raise PeerError(f"{what} did not come within {seconds:g} seconds")


async def _counts(target: Target, seconds: float) -> dict[str, int]:
    """Return the shuffler's counts of its batch, by outcome; nothing without its token."""
    if target.shuffler is None:
        return {}
    ask = partial(target.shuffler.progress, target.signed.digest())
    batch = await _answer(ask, "the shuffler's counts of its batch", seconds)
    refused = {outcome.value: batch.refused.get(outcome.value, 0) for outcome in REFUSALS}
    return {"stored": batch.n_users, "repeated": batch.repeated, **refused}


async def _result(
    finished: Finished, stored: int, task: Task, bars: Bars, seconds: float, *, close: bool
) -> Result | None:
    """Wait for the result, after closing the batch if asked to; None if it stays open."""
    target, closes = finished.target, stored >= max(task.target_size, task.n_min)
    if close and target.shuffler is not None and not closes:
        try:
            await target.shuffler.close_batch(target.signed.digest())
            closes = True
        except PeerRefusalError as error:
            finished.notes.append(f"The batch could not be closed: {error}.")
    if target.operator is None:
        return None
    if not closes:
        finished.notes.append(
            f"There is no result yet: the batch closes at {task.target_size} users, and {stored} "
            "came."
        )
        return None
    bars.start_phase("Shuffling, opening, estimating", None)
    ask = partial(target.operator.wait_for_result, target.signed.digest())
    return await _answer(ask, "the analyzer's result", seconds)


async def contribute_all(
    values: Sequence[Value],
    signed: SignedTask,
    to: Destination,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """
    Let one honest user contribute each value, in bulk: for the demo and for tests.

    Args:
        values: One a user, of the task's kind.
        signed: The task.
        to: Where they are sent.
        progress: Told how many more users' submissions are sealed.

    Raises:
        BatchStateError: A submission was not stored.
    """
    items, kinds = np.zeros(len(values), np.uint32), np.zeros(len(values), np.uint8)
    envelopes = await asyncio.to_thread(seal_values, signed, kinds, values, progress=progress)
    users = SealedUsers(signed=signed, kinds=kinds, values=items, envelopes=envelopes)
    plan = LoadPlan(mode="bulk")
    tally = await Sender(to, users, plan).run(repeat(0.0), plan.in_flight)
    if lost := len(values) - tally.answers[Outcome.STORED]:
        causes = ", ".join({*tally.refusals, *tally.failures, *tally.answers} - {Outcome.STORED})
        raise BatchStateError(f"{lost} submissions were not stored: {causes}")
