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
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path
from typing import Final, TypeVar

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
from deploy.load.usage import Meter
from deploy.load.users import SealedUsers, seal, seal_values

T = TypeVar("T")

RESULT_SECONDS: Final = 1800.0
"""For a closed batch to be permuted, delivered, opened and estimated."""
_PAUSE: Final = 1.0
"""Seconds before a service that does not answer is asked again."""
_MAX_IN_FLIGHT: Final = 4096
"""Users in flight in an open loop, over all processes; more wait, and their waits count."""
_LEAD_SECONDS: Final = 0.5
"""From dealing users to several processes to the first arrival."""


async def execute(
    kind: TargetKind,
    plan: LoadPlan,
    crowd: Crowd,
    *,
    bars: Bars,
    draft: Path | None = None,
    services: Callable[[TaskDigest], AbstractAsyncContextManager[Target]] | None = None,
    digest: TaskDigest | None = None,
    prepare: Path | None = None,
    replay: Path | None = None,
    close: bool = False,
) -> Finished | None:
    """
    Find the target, seal the users or load them from a file, and run.

    Args:
        kind: Of the target.
        plan: How users arrive.
        crowd: The users; ignored where `replay` names a file of them.
        bars: Where progress is shown.
        draft: A TOML draft for local services or a sink; None for the demo's task.
        services: Connects to running services.
        digest: Their task; None for that of a replayed file.
        prepare: File to seal into; then nothing is sent.
        replay: File of prepared users.
        close: Close the batch at the end.

    Returns:
        The outcome; None if users were only prepared.

    Raises:
        PlanError: The shuffler's batch no longer collects, or holds users.
        ShuffleDpError: As `run` raises; a file is invalid; a service does not answer, or refuses.
    """
    replayed = None if replay is None else SealedUsers.load(replay)
    # A ramp may leave users unsent: a batch of this program's own is then closed as it is.
    ends_early = kind == "local" and plan.ramp is not None
    make_draft = partial(load_draft, draft, crowd, plan.seed, ends_early=ends_early)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shuffledp-load-")))
        connected: AbstractAsyncContextManager[Target]
        if kind == "local":
            cluster = await stack.enter_async_context(Cluster(folder))
            connected = serving(cluster, make_draft(key=cluster.shuffler_key))
        elif kind == "sink":
            connected = sink(
                replayed.signed if replayed else unpublished(make_draft(key=bytes(32))), folder
            )
        else:
            wanted = digest or (replayed.signed.digest() if replayed else None)
            if services is None or wanted is None:
                raise SettingsError("running services need their address and a task's digest")
            connected = services(wanted)
        target = await stack.enter_async_context(connected)
        if replayed is not None and target.signed.digest() != replayed.signed.digest():
            raise SettingsError(f"{replay} was prepared for another task")
        if prepare is None:
            await target.check_empty()  # sealing may take long, and would be wasted
        users = replayed
        if users is None:
            bars.start_phase("Sealing", crowd.n_users)
            users = seal(target.signed, crowd, seed=plan.seed, progress=bars.show_more)
        if prepare is not None:
            users.save(prepare)
            return None
        await target.check_empty()  # real users may have come meanwhile
        return await run(plan, target, users, bars, close=close or ends_early)


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
    close, and late submissions would be answered `closed`. With `close`, a batch that has not
    closed by itself is closed at the end. `result_seconds` bounds the waits for the shuffler's
    counts and for the result.

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
    finished = Finished(plan=plan, target=target)
    counts: dict[str, int] = {}
    async with Meter(target.processes, target.pages) as meter:
        try:
            await _send(finished, users, bars)
        except BrokenProcessPool as error:
            raise SettingsError("a process that sends users ended: the run is lost") from error
        kinds = users.kinds[: finished.n_users]
        came = expected_answers(kinds)[Outcome.STORED]
        try:
            counts = await _counts(target, result_seconds)
            finished.result = await _result(finished, came, task, bars, result_seconds, close=close)
        except ShuffleDpError as error:
            finished.failure = error
    if target.kind != "sink":
        finished.rows = compare(kinds, finished.total, counts, finished.result)
    if task.kind == "categorical":
        finished.truth = users.truth(finished.n_users, task.domain_size)
    finished.usage = meter.usage
    if missing := ", ".join({*target.pages} - {*meter.usage}):
        finished.notes.append(f"The usage is unknown of {missing}: no metrics page came.")
    return finished


async def _send(finished: Finished, users: SealedUsers, bars: Bars) -> None:
    """Send all users, at each rate of the ramp or at the plan's; then the last one."""
    plan, others = finished.plan, users.n_users - 1
    ramp, rng = plan.ramp, np.random.default_rng(plan.seed)
    phases = [("Users", others, plan.rate)] if others else []
    if ramp is not None:
        steps = zip(ramp.rates, ramp.users, strict=True)
        phases = [(f"{rate:.0f} users a second", count, rate) for rate, count in steps]
    spawn, more = multiprocessing.get_context("spawn"), plan.processes - 1
    with ProcessPoolExecutor(max(1, more), spawn) as pool:
        await asyncio.gather(*(wrap_future(pool.submit(Tally)) for _ in range(more)))
        phase = partial(_phase, finished, users, bars, rng=rng, pool=pool)
        for name, count, rate in phases:
            if (left := others - finished.n_users) < count:
                finished.notes.append(f"The step of {name} needs {count} users; {left} were left.")
                break
            seen = await phase(name, count, rate)
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
            last = await phase("The last user", 1, None)
            finished.total.add(last)
            if not others:
                finished.seen.add(last)


async def _phase(  # noqa: PLR0917  # bound once by its only caller
    finished: Finished,
    users: SealedUsers,
    bars: Bars,
    name: str,
    count: int,
    rate: float | None,
    *,
    rng: np.random.Generator,
    pool: ProcessPoolExecutor,
) -> Tally:
    """Send the next users at a rate, or in a closed loop, each process its share."""
    plan, bulk = finished.plan, finished.plan.mode == "bulk"
    together = submissions_of_a_call(users.envelopes.shape[1]) if bulk else 1
    calls = math.ceil(count / together)
    processes = min(plan.processes, calls)
    begin, times, places = time.monotonic(), np.zeros(calls), plan.in_flight
    if rate is not None:
        places = CallKind.BULK.value.places if bulk else _MAX_IN_FLIGHT
        share = calls / count  # calls a user, in bulk
        burst = max(1, round(plan.burst * share)) if plan.pattern == "burst" else None
        begin += _LEAD_SECONDS * (processes > 1)
        times = begin + arrivals(calls, rate * share, rng, burst=burst)
    schedules = [times[number::processes].tolist() for number in range(processes)]
    ends = np.cumsum([0, *(together * len(schedule) for schedule in schedules)])
    ends = finished.n_users + np.minimum(ends, count)
    parts = [users.part(first, end) for first, end in pairwise(ends.tolist())]
    (own, *senders) = [Sender(finished.target.to, part, plan) for part in parts]
    finished.n_users += count
    bars.start_phase(name, parts[0].n_users)
    each = max(1, places // processes)
    others = [
        wrap_future(pool.submit(run_alone, sender, schedule, each))
        for sender, schedule in zip(senders, schedules[1:], strict=True)
    ]
    tally = await own.run(schedules[0], max(each, places - each * len(others)), bars.show_tally)
    for other in await asyncio.gather(*others):
        tally.add(other)
    if rate is not None:  # a phase takes at least as long as its schedule
        tally.last = max(tally.last, begin + count / rate)
    return tally


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
        finished.notes.append(f"There is no result yet: the batch of {stored} users is open.")
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

    `progress` is told how many more users' submissions are sealed.

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
