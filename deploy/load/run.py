"""A load run from the first user to the comparison of all counts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.errors import PeerError, PeerRefusalError, PlanError, ShuffleDpError
from common.messages.estimate import Histogram
from common.messages.result import Result
from common.messages.submission import REFUSALS, Outcome
from common.runtime.access import CallKind
from common.task.task import Task
from deploy.load import comparison
from deploy.load.behaviour import expected_answers
from deploy.load.comparison import CountRow
from deploy.load.people import submissions_of_a_call
from deploy.load.plan import LoadPlan, Ramp, Step, arrivals
from deploy.load.sender import Sender, Tally
from deploy.load.target import Target
from deploy.load.usage import Meter, PartyUsage, own_source
from deploy.load.users import SealedUsers

T = TypeVar("T")

RESULT_SECONDS: Final = 1800.0
"""For a closed batch to be permuted, delivered, opened and estimated."""
_PAUSE: Final = 1.0
"""Seconds before a service that does not answer is asked again."""
_PROGRESS_SECONDS: Final = 0.25
_MAX_IN_FLIGHT: Final = 4096
"""Users in flight in an open loop; more wait, and their waits count."""


class Observer(Protocol):
    """Is told the progress of a run."""

    def begins(self, what: str, users: int | None) -> None:
        """A phase begins for this many users; None if its length is unknown."""

    def sees(self, tally: Tally) -> None:
        """The phase has come so far."""


@dataclass(kw_only=True, eq=False)
class Finished:
    """The outcome of a run."""

    plan: LoadPlan
    target: Target
    n_users: int = 0
    """Users who came."""
    seen: Tally = field(default_factory=Tally)
    """Of all users but the last, who is sent alone: rates and waits are of these."""
    total: Tally = field(default_factory=Tally)
    """Of all users: counts are of these."""
    steps: list[Step] = field(default_factory=list)
    rows: list[CountRow] = field(default_factory=list)
    result: Result | None = None
    failure: ShuffleDpError | None = None
    """Why the shuffler's counts or the result are missing; None if nothing is."""
    truth: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    usage: dict[str, PartyUsage] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def counts_match(self) -> bool:
        """Whether every known count lies in its range."""
        return all(row.holds for row in self.rows)

    @property
    def errors(self) -> dict[str, float]:
        """The squared error of unrefined shares, a mean over items; empty for other kinds."""
        if self.result is None or not isinstance(self.result.estimate, Histogram):
            return {}
        theory = self.result.histogram.mse_theory
        mse = float(np.mean((self.result.histogram.frequencies - self.truth) ** 2))
        return {"mse": mse, "mse_theory": theory} | (
            {"mse_over_theory": mse / theory} if theory else {}
        )


async def run(
    plan: LoadPlan,
    target: Target,
    users: SealedUsers,
    observer: Observer,
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
        observer: Told the progress.
        close: Close the batch at the end, if it has not closed by itself.
        result_seconds: Patience for the shuffler's counts, and again for the result.

    Raises:
        PlanError: The batch would close before the last user.
    """
    task = Task.from_bytes(users.signed.task_bytes)
    stored = expected_answers(users.kinds)[Outcome.STORED]
    if target.kind != "sink" and stored > task.target_size:
        raise PlanError(
            f"{stored} users would be stored, and the task's target_size is {task.target_size}: "
            "the batch would close before the last of them"
        )
    finished = Finished(plan=plan, target=target)
    async with Meter(own_source, *target.sources) as meter:
        await _Sending(finished, users, observer).send()
        kinds = users.kinds[: finished.n_users]
        if target.kind != "sink":
            finished.rows = comparison.answered(kinds, finished.total)
        try:
            counts = await _counts(target, result_seconds)
            finished.rows += comparison.counted_by_service(kinds, finished.total, counts)
            if await _closes(finished, kinds, task, close=close):
                finished.result = await _result(target, observer, result_seconds)
        except ShuffleDpError as error:
            finished.failure = error
    if (result := finished.result) is not None:
        refused = sum(result.refused.values())
        finished.rows += comparison.counted_by_analyzer(kinds, result.n_users, refused)
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

    def __init__(self, finished: Finished, users: SealedUsers, observer: Observer) -> None:
        self._plan = finished.plan
        self._to = finished.target.to
        self._finished = finished
        self._users = users
        self._observer = observer
        self._rng = np.random.default_rng(finished.plan.seed)
        bulk = finished.plan.mode == "bulk"
        self._together = submissions_of_a_call(users.envelopes.shape[1]) if bulk else 1
        self._most = CallKind.BULK.value.places if bulk else _MAX_IN_FLIGHT

    async def send(self) -> None:
        """Send them."""
        finished, others = self._finished, self._users.n_users - 1
        if self._plan.ramp is not None:
            await self._climb(self._plan.ramp, others)
        elif others:
            self._observer.begins("Users", others)
            finished.seen = await self._phase(others, self._plan.rate)
        finished.total.add(finished.seen)
        if finished.n_users == others:
            self._observer.begins("The last user", None)
            last = await self._phase(1, None)
            finished.total.add(last)
            finished.seen = finished.seen if others else last

    async def _climb(self, ramp: Ramp, others: int) -> None:
        finished = self._finished
        for rate, count in zip(ramp.rates, ramp.users, strict=True):
            left = others - finished.n_users
            if count > left:
                finished.notes.append(
                    f"The step of {rate:.0f} a second needs {count} users; {left} were left."
                )
                return
            self._observer.begins(f"{rate:.0f} users a second", count)
            seen = await self._phase(count, rate)
            finished.seen.add(seen)
            step = Step(
                offered=rate,
                achieved=seen.per_second(seen.answered),
                p99=seen.milliseconds().get("p99", 0.0),
                failures=seen.failures.total(),
                given_up=seen.given_up,
                p99_limit=ramp.p99_limit,
            )
            finished.steps.append(step)
            if step.broken_by is not None:
                return

    async def _phase(self, count: int, rate: float | None) -> Tally:
        """Send the next users at a rate, or in a closed loop."""
        first, end = self._finished.n_users, self._finished.n_users + count
        starts = range(first, end, self._together)
        sender = Sender(self._to, self._users, self._plan)
        begin, times = time.monotonic(), [0.0] * len(starts)
        room = asyncio.Semaphore(self._plan.in_flight if rate is None else self._most)
        if rate is not None:
            share = len(starts) / count  # calls a user, in bulk
            burst = max(1, round(self._plan.burst * share))
            times = (begin + arrivals(len(starts), rate * share, self._rng, burst=burst)).tolist()

        async def send(start: int, intended: float) -> None:
            try:
                await sender.send(start, min(start + self._together, end), intended)
            finally:
                room.release()

        watching = asyncio.create_task(self._watch(sender.tally))
        try:
            async with asyncio.TaskGroup() as group:
                for start, at in zip(starts, times, strict=True):
                    await asyncio.sleep(max(0.0, at - time.monotonic()))
                    await room.acquire()
                    group.create_task(send(start, at or time.monotonic()))
        finally:
            watching.cancel()
            await sender.close()
        if rate is not None:  # a phase takes at least as long as its schedule
            sender.tally.last = max(sender.tally.last, begin + count / rate)
        self._finished.n_users = end
        self._observer.sees(sender.tally)
        return sender.tally

    async def _watch(self, tally: Tally) -> None:
        while True:
            self._observer.sees(tally)
            await asyncio.sleep(_PROGRESS_SECONDS)


async def _answer(ask: Callable[[], Awaitable[T]], what: str, seconds: float) -> T:
    """Ask until there is an answer: a service that does not answer may be restarting."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask()
                except PeerError:
                    await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise PeerError(f"{what} did not come within {seconds:g} seconds") from error


async def _counts(target: Target, seconds: float) -> dict[str, int]:
    """Return the shuffler's counts of its batch, by outcome; nothing without its token."""
    if target.shuffler is None:
        return {}
    ask = partial(target.shuffler.progress, target.signed.digest())
    batch = await _answer(ask, "the shuffler's counts of its batch", seconds)
    refused = {outcome.value: batch.refused.get(outcome.value, 0) for outcome in REFUSALS}
    return {"stored": batch.n_users, "repeated": batch.repeated, **refused}


async def _closes(finished: Finished, kinds: NDArray[np.uint8], task: Task, *, close: bool) -> bool:
    """Return whether the batch closes now, after closing it if asked to."""
    target, stored = finished.target, expected_answers(kinds)[Outcome.STORED]
    if stored >= max(task.target_size, task.n_min):
        return True
    if close and target.shuffler is not None:
        try:
            await target.shuffler.close_batch(target.signed.digest())
        except PeerRefusalError as error:
            finished.notes.append(f"The batch could not be closed: {error}.")
        else:
            return True
    if target.operator is not None:
        finished.notes.append(
            f"There is no result yet: the batch closes at {task.target_size} users, and {stored} "
            "came."
        )
    return False


async def _result(target: Target, observer: Observer, seconds: float) -> Result | None:
    """Wait for the result; None without the analyzer's operator."""
    if target.operator is None:
        return None
    observer.begins("Shuffling, opening, estimating", None)
    ask = partial(target.operator.wait_for_result, target.signed.digest())
    return await _answer(ask, "the analyzer's result", seconds)
