"""Run a load test: seal or load the users, send them to a target, and reconcile all counts."""

import asyncio
import math
import time
from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from shuffledp.common import errors
from shuffledp.common.crypto.hpke_pool import worker_pool
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.result import Result
from shuffledp.common.messages.submission import REFUSALS, Outcome, Value
from shuffledp.common.runtime.access import CallKind
from shuffledp.common.task.task import Task
from shuffledp.deploy.load import behaviour
from shuffledp.deploy.load.behaviour import LoadPlan, Tally
from shuffledp.deploy.load.report import LoadReport, ProgressBars
from shuffledp.deploy.load.sender import Destination, Sender, run_alone, submissions_of_a_call
from shuffledp.deploy.load.target import Meter, Target
from shuffledp.deploy.load.users import SealedUsers, seal, seal_values

T = TypeVar("T")

_ANSWER_SECONDS: Final = 1800.0
"""Timeout in seconds for the shuffler's counts, and for a closed batch's result."""
_PAUSE: Final = 1.0
_FOREIGN_REPLIES: Final = 60
"""Successive refusals by a proxy before giving up: it may refuse while the service restarts."""
_MAX_IN_FLIGHT: Final = 4096
"""Maximum users in flight in an open loop, over all processes; later users' waits are counted."""
_LEAD_SECONDS: Final = 0.5
"""Seconds from handing users to processes to the first arrival."""


async def execute(
    connecting: AbstractAsyncContextManager[Target],
    plan: LoadPlan,
    *,
    bars: ProgressBars,
    replayed: SealedUsers | None = None,
    prepare: Path | None = None,
    close: bool = False,
    tokens: Sequence[bytes] = (),
) -> LoadReport | None:
    """
    Run a load test with newly sealed or replayed users; with `prepare`, only seal them.

    Raises PlanError before sealing if the batch is not collecting or not empty, would close before
    the last user or could not be closed, or the number of tokens is wrong; SettingsError if the
    replayed users are for another task.
    """
    bars.start_phase("Starting", None)
    async with connecting as target:
        task, kinds = Task.from_bytes(target.signed.task_bytes), plan.draw_kinds()
        kinds = kinds if replayed is None else replayed.kinds
        n_users, required = len(kinds), len(kinds) * (task.tokens is not None)
        if prepare is None and len(tokens) != required:
            raise errors.PlanError(
                f"{n_users} users of this task need {required} tokens; --tokens has {len(tokens)}"
            )
        if replayed is not None and target.signed.digest() != replayed.signed.digest():
            raise errors.SettingsError("the users were prepared for another task")
        if prepare is None:  # before sealing, which may take a long time
            await target.check_empty()
            if target.kind != "sink":
                behaviour.check_users(kinds, task.n_min if close else 0, task.target_size)
        users = replayed
        if users is None:
            bars.start_phase("Sealing", plan.n_users)
            users = seal(target.signed, plan, bars.show_more)
        if prepare is not None:
            users.save(prepare)
            return None
        users = replace(users, tokens=tokens)
        await target.check_empty()  # real users may have submitted meanwhile
        # A ramp may leave users unsent, and a draft may wait for more: close this program's batch.
        return await run(plan, target, users, bars, close=close or target.kind == "local")


async def run(
    plan: LoadPlan, target: Target, users: SealedUsers, bars: ProgressBars, *, close: bool = False
) -> LoadReport:
    """
    Send the users, the last one after all others have finished; reconcile all counts.

    With `close`, close a batch that is still open at the end. Raises SettingsError if a sending
    process dies.
    """
    finished = LoadReport(plan=plan, target=target, users=users)
    counts: dict[str, int] = {}
    with Meter(target.processes, target.pages) as meter:
        try:
            await _send(finished, bars)
        except BrokenProcessPool as error:
            raise errors.SettingsError("a sending process died: the run is lost") from error
        try:
            counts = await _counts(target)
            finished.result = await _result(finished, bars, close=close)
        except errors.ShuffleDpError as error:
            finished.failure = error
    if target.kind != "sink":
        finished.rows = behaviour.compare(finished.kinds, finished.tally, counts, finished.result)
    finished.usage = meter.usage
    if missing := ", ".join({*target.pages} - {*meter.usage}):
        finished.notes.append(f"Usage unknown, without a metrics page: {missing}.")
    return finished


async def _send(finished: LoadReport, bars: ProgressBars) -> None:
    """Send all users at the rates of the ramp or the plan, then the last user."""
    plan, others = finished.plan, finished.users.n_users - 1
    more = plan.processes - 1
    with worker_pool(more) as pool:
        await asyncio.gather(*(wrap_future(pool.submit(Tally)) for _ in range(more)))
        phase = partial(_phase, finished, bars, pool, np.random.default_rng(plan.seed))
        if others and plan.ramp is None:
            await phase("Users", plan.rate, others)
        for rate, count in plan.ramp.phases if plan.ramp else ():
            name, left = f"{rate:.0f} users per second", others - finished.n_users
            if left < count:
                note = f"The step of {name} needs {count} users; only {left} are left."
                finished.notes.append(note)
                break
            finished.add_step(rate, await phase(name, rate, count))
            if finished.failure_reason is not None:
                break
        if finished.n_users == others:
            await phase("The last user", None, 1)


async def _phase(  # noqa: PLR0917  # its only caller binds the first four
    finished: LoadReport,
    bars: ProgressBars,
    pool: ProcessPoolExecutor,
    rng: np.random.Generator,
    name: str,
    rate: float | None,
    count: int,
) -> Tally:
    """Send the next users at a rate, or in a closed loop, split over processes."""
    plan, users, bulk = finished.plan, finished.users, finished.plan.mode == "bulk"
    together = submissions_of_a_call(int(users.sizes.max())) if bulk else 1
    calls = math.ceil(count / together)
    processes = min(plan.processes, calls)
    begin, times, in_flight = time.monotonic(), np.zeros(calls), plan.in_flight
    if rate is not None:
        in_flight = CallKind.BULK.value.calls if bulk else _MAX_IN_FLIGHT
        share = calls / count  # calls per user
        burst = max(1, round(plan.burst * share)) if plan.burst else None
        begin += _LEAD_SECONDS * (processes > 1)
        times = begin + behaviour.arrivals(calls, rate * share, rng, burst=burst)
    senders: list[Sender] = []
    end = finished.n_users + count
    for number in range(processes):
        schedule, first = times[number::processes].tolist(), finished.n_users
        finished.n_users = min(first + together * len(schedule), end)
        part, share = users.part(first, finished.n_users), (in_flight + number) // processes
        senders.append(Sender(finished.target.to, part, plan, schedule, max(1, share)))
    bars.start_phase(name, senders[0].users.n_users)
    others = [wrap_future(pool.submit(run_alone, sender)) for sender in senders[1:]]
    tally = await senders[0].run(bars.show_tally)
    for other in await asyncio.gather(*others):
        tally.add(other)
    if rate is not None:  # a phase lasts at least as long as its schedule
        tally.last = max(tally.last, begin + count / rate)
    finished.tally.add(tally)
    return tally


async def _answer(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """Call `ask` until the service answers or refuses, or a proxy refuses too often in a row."""
    foreign = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_ANSWER_SECONDS):
            while True:
                try:
                    return await ask()
                except errors.ForeignReplyError:
                    foreign += 1
                    if foreign == _FOREIGN_REPLIES:
                        raise
                except errors.PeerError:
                    foreign = 0
                await asyncio.sleep(_PAUSE)
    raise errors.PeerError(f"{what} did not arrive within {_ANSWER_SECONDS:g} seconds")


async def _counts(target: Target) -> dict[str, int]:
    """Return the shuffler's counts of its batch by outcome; empty without its token."""
    if target.shuffler is None:
        return {}
    ask = partial(target.shuffler.progress, target.signed.digest())
    batch = await _answer(ask, "the shuffler's counts of its batch")
    refused = {outcome.value: batch.refused.get(outcome.value, 0) for outcome in REFUSALS}
    return {"stored": batch.n_users, "repeated": batch.repeated, **refused}


async def _result(finished: LoadReport, bars: ProgressBars, *, close: bool) -> Result | None:
    """Close the batch if `close`, and wait for the result; None if open or without a token."""
    target, task = finished.target, finished.task
    digest, stored = (
        target.signed.digest(),
        behaviour.expected_answers(finished.kinds)[Outcome.STORED],
    )
    closes = stored >= max(task.target_size, task.n_min)
    if close and target.shuffler is not None and not closes:
        try:
            await target.shuffler.close_batch(digest)
            closes = True
        except errors.PeerRefusalError as error:
            finished.notes.append(f"The batch could not be closed: {error}.")
    if target.operator is None:
        return None
    if not closes:
        finished.notes.append(f"No result yet: the batch of {stored} users is open.")
        return None
    bars.start_phase("Shuffling, opening, estimating", None)
    ask = partial(target.operator.wait_for_result, digest)
    return await _answer(ask, "the analyzer's result")


async def contribute_all(
    values: Sequence[Value],
    signed: SignedTask,
    to: Destination,
    *,
    tokens: Sequence[bytes] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Contribute values as honest users, in bulk; raise BatchStateError if one is not stored."""
    kinds, plan = np.zeros(len(values), np.uint8), LoadPlan(mode="bulk")
    try:
        users = await asyncio.to_thread(seal_values, signed, kinds, values, progress)
    except BrokenProcessPool as error:
        rule = 'a script that collects from so many people needs `if __name__ == "__main__":`'
        raise errors.SettingsError(f"a sealing process died; {rule}") from error
    users = replace(users, tokens=tokens)
    tally = await Sender(to, users, plan, repeat(0.0), plan.in_flight).run()
    if lost := len(values) - tally.answers[Outcome.STORED]:
        causes = ", ".join({*tally.refusals, *tally.failures, *tally.answers} - {Outcome.STORED})
        raise errors.BatchStateError(f"{lost} submissions were not stored: {causes}")
