"""A load run from the first user to the report."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.errors import PeerError, PeerRefusalError, PlanError, ShuffleDpError
from common.messages.estimate import Histogram
from common.messages.result import Result
from common.messages.submission import REFUSALS, Outcome
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.load import comparison
from deploy.load.arrivals import arrivals, in_calls, submissions_of_a_call
from deploy.load.behaviour import SUBMISSIONS, expected_answers
from deploy.load.comparison import Row
from deploy.load.fleet import Fleet
from deploy.load.plan import LoadPlan
from deploy.load.prepared_file import Prepared
from deploy.load.ramp import Step, Verdict, broken_by, judge
from deploy.load.tally import Tally
from deploy.load.target import Target
from deploy.load.usage import Meter, Taken, local_source, together

T = TypeVar("T")

RESULT_SECONDS: Final = 1800.0
"""For a closed batch to be permuted, delivered, opened and estimated."""
_PAUSE: Final = 1.0
"""Seconds before a service that does not answer is asked again."""
GENERATOR: Final = "load generator"


class Observer(Protocol):
    """Who is told how far a run is. Called from another thread than the event loop's."""

    def begins(self, what: str, users: int | None) -> None:
        """Something begins that so many users go through; None if nobody knows how long."""

    def sees(self, tally: Tally) -> None:
        """So much was seen of it so far."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finished:
    """What a run came to."""

    plan: LoadPlan
    target: Target
    n_users: int
    """Who came."""
    seen: Tally
    """By all of them but the last one, who is sent alone: rates and waits are of this."""
    offered: float | None
    """Users a second; None in a closed loop."""
    steps: list[Step] = field(default_factory=list)
    verdict: Verdict | None = None
    total: Tally
    """With the last one: counts are of this."""
    rows: list[Row]
    result: Result | None
    failure: ShuffleDpError | None
    """Why the shuffler's counts, or the result, did not come; None if nothing is missing."""
    truth: NDArray[np.float64]
    usage: dict[str, Taken]
    notes: list[str]

    @property
    def counts_match(self) -> bool:
        """Every count that came is one that it may be."""
        return comparison.all_hold(self.rows)

    @property
    def mse(self) -> float | None:
        """Mean over items of the squared error of the unrefined shares; None of other kinds."""
        if self.result is None or not isinstance(self.result.estimate, Histogram):
            return None
        return float(np.mean((self.result.histogram.frequencies - self.truth) ** 2))


async def run(
    plan: LoadPlan,
    target: Target,
    prepared: Prepared,
    observer: Observer,
    *,
    close: bool = False,
    result_seconds: float = RESULT_SECONDS,
) -> Finished:
    """
    Let the prepared users come, wait for the result if there will be one, and compare.

    Where the shuffler's counts or the result do not come, the rest is told, and why they did not.

    The last user, who is honest, comes when all others are through: until then the batch does not
    close, and what is late would be answered `closed`.

    Args:
        plan: How they come.
        target: Where.
        prepared: Who they are.
        observer: Told how far it is.
        close: Close the batch at the end, if it has not closed by itself.
        result_seconds: How long the shuffler's counts, and then the result, are waited for.

    Raises:
        PlanError: The batch would close before the last user.
        SettingsError: A process of the generator has ended.
    """
    task = Task.from_bytes(prepared.signed.task_bytes)
    _check_room(target, prepared, task)
    async with AsyncExitStack() as stack:
        fleet = stack.enter_context(Fleet(target.to, prepared, plan))
        source = local_source(lambda: {GENERATOR: fleet.pids})
        meter = await stack.enter_async_context(
            Meter(source if target.source is None else together(source, target.source))
        )
        played = await _Play(plan, prepared, fleet, observer).play()
        counts: dict[str, int] = {}
        result = failure = None
        try:
            counts = await _counted_by_shuffler(target, prepared.signed.digest(), result_seconds)
            result = await _result(
                target, played, prepared, task, observer, close=close, seconds=result_seconds
            )
        except ShuffleDpError as error:
            failure = error
    kinds = prepared.kinds[: played.n_users]
    rows = [] if target.kind == "sink" else comparison.answered(kinds, played.total)
    rows += comparison.counted_by_service(kinds, played.total, counts)
    if result is not None:
        rows += comparison.counted_by_analyzer(kinds, result.n_users, result.refused)
    return Finished(
        plan=plan,
        target=target,
        n_users=played.n_users,
        seen=played.seen,
        offered=plan.rate,
        steps=played.steps,
        verdict=None if plan.ramp is None else judge(played.steps, plan.ramp.p99_limit),
        total=played.total,
        rows=rows,
        result=result,
        failure=failure,
        truth=(
            prepared.truth(played.n_users, task.domain_size)
            if task.kind == "categorical"
            else np.zeros(0)
        ),
        usage=meter.usage,
        notes=[
            *played.notes,
            *(
                f"No page of metrics came from {party}: what it took is not known. --metrics names "
                "the whole address, such as http://127.0.0.1:9464/metrics."
                for party in target.parties
                if party not in meter.usage
            ),
        ],
    )


def _check_room(target: Target, prepared: Prepared, task: Task) -> None:
    stored = expected_answers(prepared.kinds)[Outcome.STORED]
    if target.kind != "sink" and stored > task.target_size:
        raise PlanError(
            f"{stored} users would be stored, and the task's target_size is {task.target_size}: "
            "the batch would close before the last of them"
        )


@dataclass(slots=True, kw_only=True)
class _Played:
    n_users: int = 0
    seen: Tally = field(default_factory=Tally)
    total: Tally = field(default_factory=Tally)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Play:
    """Users in their order, phase by phase."""

    def __init__(
        self, plan: LoadPlan, prepared: Prepared, fleet: Fleet, observer: Observer
    ) -> None:
        self._plan = plan
        self._prepared = prepared
        self._fleet = fleet
        self._observer = observer
        self._rng = np.random.default_rng(plan.seed)

    async def play(self) -> _Played:
        played, others = _Played(), self._prepared.n_users - 1
        if self._plan.ramp is not None:
            await self._climb(played, others)
        elif others:
            self._observer.begins("Users", others)
            played.seen = await self._phase(0, others, self._plan.rate)
            played.n_users = others
        played.total.add(played.seen)
        if played.n_users == others:
            self._observer.begins("The last user", None)
            last = await self._phase(others, others + 1, None)
            played.total.add(last)
            played.n_users += 1
            if not others:
                played.seen = last
        return played

    async def _climb(self, played: _Played, others: int) -> None:
        ramp = self._plan.ramp
        if ramp is None:
            return
        for rate, users in zip(ramp.rates, ramp.users, strict=True):
            end = played.n_users + users
            if end > others:
                played.notes.append(
                    f"There were not enough users for the step of {rate:.0f} a second: it takes "
                    f"{users}, and {others - played.n_users} were left."
                )
                return
            self._observer.begins(f"{rate:.0f} users a second", users)
            seen = await self._phase(played.n_users, end, rate)
            played.n_users = end
            played.seen.add(seen)
            step = Step(
                offered=rate,
                achieved=seen.per_second(seen.answered),
                p99=seen.milliseconds().get("p99", 0.0),
                failures=seen.failures.total(),
                given_up=seen.given_up,
            )
            played.steps.append(step)
            if broken_by(step, ramp.p99_limit) is not None:
                return

    async def _phase(self, first: int, end: int, rate: float | None) -> Tally:
        plan = self._plan
        units, burst = self._units(first, end), plan.burst
        times = None
        if rate is not None:
            share = len(units) / (end - first)  # calls, where users come in bulk
            burst = max(1, round(burst * share))
            times = arrivals(len(units), rate * share, plan.pattern, self._rng, burst=burst)
        seen = await asyncio.to_thread(
            self._fleet.run, units, times, plan.at_once, self._observer.sees
        )
        if times is not None:  # the schedule's own length is the least that a phase can take
            seen.last = max(seen.last, seen.first + (end - first) / (rate or 1))
        return seen

    def _units(self, first: int, end: int) -> NDArray[np.int64]:
        if self._plan.mode == "users":
            return np.column_stack([np.arange(first, end), np.arange(first + 1, end + 1)])
        most = submissions_of_a_call(self._prepared.envelope_bytes)
        return first + in_calls(SUBMISSIONS[self._prepared.kinds[first:end]], most)


async def _awaited(ask: Callable[[], Awaitable[T]], what: str, seconds: float) -> T:
    """Ask until there is an answer: who does not answer may be starting again."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask()
                except PeerError:
                    await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise PeerError(f"{what} did not come within {seconds:g} seconds") from error


async def _counted_by_shuffler(
    target: Target, digest: TaskDigest, seconds: float
) -> dict[str, int]:
    """Ask the shuffler what its batch holds and refused, by outcome; nothing without its token."""
    if target.shuffler is None:
        return {}
    progress = await _awaited(
        partial(target.shuffler.progress, digest), "the shuffler's counts of its batch", seconds
    )
    refused = {outcome.value: progress.refused.get(outcome.value, 0) for outcome in REFUSALS}
    return {
        Outcome.STORED.value: progress.n_users,
        Outcome.REPEATED.value: progress.repeated,
        **refused,
    }


async def _result(
    target: Target,
    played: _Played,
    prepared: Prepared,
    task: Task,
    observer: Observer,
    *,
    close: bool,
    seconds: float,
) -> Result | None:
    """Wait for the result, if the batch closes now."""
    stored = expected_answers(prepared.kinds[: played.n_users])[Outcome.STORED]
    closes = stored >= max(task.target_size, task.n_min)
    if close and target.shuffler is not None and not closes:
        try:
            await target.shuffler.close_batch(prepared.signed.digest())
            closes = True
        except PeerRefusalError as error:
            played.notes.append(f"The batch could not be closed: {error}.")
    if target.operator is None:
        return None
    if not closes:
        played.notes.append(
            f"No result was awaited: the batch closes at {task.target_size} users, and {stored} "
            "came."
        )
        return None
    observer.begins("Shuffling, opening, estimating", None)
    ask = partial(target.operator.wait_for_result, prepared.signed.digest())
    return await _awaited(ask, "the analyzer's result", seconds)
