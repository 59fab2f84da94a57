"""Send simulated users' sealed submissions, each by their behaviour, and count the answers."""

import asyncio
import copyreg
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Final, Self, TypeVar

import grpc
from hdrh.histogram import HdrHistogram

from common.errors import (
    PeerBusyError,
    PeerError,
    PeerRefusalError,
    SettingsError,
    ShuffleDpError,
)
from common.messages.submission import Outcome
from common.runtime.rpc import reply
from common.runtime.tls import is_local
from common.task.task import Task
from common.wire.fields import MAX_MESSAGE_BYTES
from common.wire.submissions import MAX_BULK_ENVELOPES, outcomes_from_wire
from deploy.load.behaviour import Behaviour, is_counted
from deploy.load.plan import LoadPlan
from deploy.load.users import SealedUsers
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc

T = TypeVar("T")

_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_DEADLINE: Final = 60.0
_BULK_DEADLINE: Final = 330.0
"""Seconds, longer than the shuffler itself takes at most."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds before a retry, doubled each time, and up to a half more at random."""
_BEFORE_LEAVING: Final = 0.02
"""Seconds between a call's beginning and its end by a user who drops out."""
_ARRIVED: Final = frozenset({Outcome.STORED, Outcome.REPEATED})
_BY_STATUS: Final = {
    "INVALID_ARGUMENT": Outcome.MALFORMED,
    "UNAUTHENTICATED": Outcome.UNAUTHENTICATED,
}
_BY_SENTENCE: Final = {
    "this submission id was used with other bytes": Outcome.CONFLICT,
    "this token was used for this task, with another submission": Outcome.TOKEN_USED,
    "the task's batch no longer collects": Outcome.CLOSED,
    "the task's batch is over": Outcome.CLOSED,
}
"""Refusals of several kinds that share one status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The address that simulated users connect to."""

    address: str
    authority: bytes | None
    """PEM of the authority to trust; None for plaintext on loopback."""

    def __post_init__(self) -> None:
        if self.authority is None and not is_local(self.address):
            raise SettingsError(f"plaintext is allowed on loopback only, not to {self.address}")

    def open(self) -> grpc.aio.Channel:
        """Open a channel with a connection of its own, which retries nothing by itself."""
        options: list[tuple[str, Any]] = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", round(1000 * _FIRST_PAUSE)),
            ("grpc.max_reconnect_backoff_ms", round(1000 * _LONGEST_PAUSE)),
        ]
        if self.authority is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(self.authority),
            options=[*options, ("grpc.ssl_target_name_override", "shuffler")],
        )


copyreg.pickle(HdrHistogram, lambda waits: (HdrHistogram.decode, (waits.encode(),)))


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of what some users saw; tallies add up."""

    finished: int = 0
    """Users who are through, with or without an answer."""
    acknowledged: int = 0
    """Users whose submission is stored, as the shuffler answered."""
    answers: Counter[Outcome] = field(default_factory=Counter)
    """Final answers to submissions."""
    reports: int = 0
    """Sealed reports in submissions answered `stored`."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Final answers that no simulated user should get, by their text."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed attempts that can be retried, by cause."""
    retries: int = 0
    lost: int = 0
    """Submissions in attempts without an answer: they may be stored or not."""
    shed: int = 0
    """Copies of a flood that were not answered, and are never retried."""
    given_up: int = 0
    """Users whose patience ended."""
    dropped: int = 0
    """Users who left before they sent anything, as intended."""
    first: float = float("inf")
    """Start of the first user, on the monotonic clock."""
    last: float = 0.0
    """End of the last user, or of an open loop's schedule if that is later."""
    waits: HdrHistogram = field(default_factory=partial(HdrHistogram, 1, 3_600_000_000, 3))
    """Microseconds, up to an hour, until users (in bulk, calls) were answered or gave up."""

    def add(self, other: Self) -> None:
        """Add what others saw."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        for name in (one.name for one in fields(self) if one.name != "waits"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first, self.last = first, last
        self.waits.add(other.waits)

    @property
    def answered(self) -> int:
        """Users who are through and did not give up, those who left as intended included."""
        return self.finished - self.given_up

    @property
    def seconds(self) -> float:
        """Seconds from `first` to `last`; of a ramp, pauses between steps included."""
        return max(0.0, self.last - self.first)

    def per_second(self, number: int) -> float:
        """Return a rate; 0 for no events."""
        return number / self.seconds if number and self.seconds else 0.0

    def milliseconds(self) -> dict[str, float]:
        """Return percentiles of the waits, and the longest."""
        if not self.waits.get_total_count():
            return {}
        found = {f"p{p:g}": self.waits.get_value_at_percentile(p) / 1000 for p in _PERCENTILES}
        return found | {"max": self.waits.get_max_value() / 1000}


class _OutOfPatienceError(ShuffleDpError):
    """A simulated user was not answered for too long."""


def submissions_of_a_call(envelope_bytes: int) -> int:
    """Return how many submissions travel in one bulk call: half of what the shuffler reads."""
    return max(1, min(MAX_BULK_ENVELOPES // 2, MAX_MESSAGE_BYTES // (2 * envelope_bytes)))


def outcome_of(refusal: PeerRefusalError) -> Outcome | None:
    """Return the outcome that a bulk call would state for a refusal; None for other refusals."""
    return _BY_STATUS.get(refusal.status) or _BY_SENTENCE.get(str(refusal))


class Sender:
    """Sends users' submissions; `tally` counts what they saw so far."""

    def __init__(self, to: Destination, users: SealedUsers, plan: LoadPlan) -> None:
        self._to = to
        self._users = users
        self._counted: list[bool] = is_counted(users.kinds).tolist()
        self._plan = plan
        self._digest = users.signed.digest()
        self._reports = Task.from_bytes(users.signed.task_bytes).reports_per_user
        self._most = submissions_of_a_call(users.envelopes.shape[1])
        self.tally = Tally()

    async def run(
        self,
        times: Iterable[float],
        places: int,
        progress: Callable[[Tally], None] = lambda _: None,
    ) -> Tally:
        """
        Send all users: one by one, or in bulk a call's together.

        Args:
            times: Scheduled start of each on the monotonic clock, ascending: waits count from
                there. 0 to start as soon as there is a place.
            places: Users or calls in flight.
            progress: Shown the tally after each user or call.
        """
        room, n_users = asyncio.Semaphore(places), self._users.n_users
        together = self._most if self._plan.mode == "bulk" else 1

        async def send(first: int, intended: float) -> None:
            try:
                await self._send(first, min(first + together, n_users), intended)
            finally:
                room.release()
            progress(self.tally)

        async with asyncio.TaskGroup() as group:
            for first, at in zip(range(0, n_users, together), times, strict=False):
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                await room.acquire()
                group.create_task(send(first, at or time.monotonic()))
        return self.tally

    async def _send(self, first: int, end: int, intended: float) -> None:
        """Send some users over a connection of their own, but for those who drop out."""
        self.tally.first = min(self.tally.first, intended)
        users = range(first, end)
        sent = {user: found for user in users if (found := self._users.submissions(user))}
        try:
            if sent:
                async with self._to.open() as channel:
                    stub = shuffler_pb2_grpc.ShufflerStub(channel)
                    if self._plan.mode == "bulk":
                        await self._send_together(stub, sent, intended)
                    else:
                        await self._send_alone(stub, first, sent[first], intended)
        except _OutOfPatienceError:
            self.tally.given_up += len(sent)
        except PeerRefusalError as error:  # of the task, or of a bulk call
            self.tally.refusals[str(error) or error.status] += len(sent)
        for _ in range(end - first - len(sent)):
            await self._leave()
        self.tally.finished += end - first
        self.tally.last = max(self.tally.last, time.monotonic())

    async def _leave(self) -> None:
        """Connect, begin a submission, send nothing, and hang up."""
        async with self._to.open() as channel:
            call: Any = channel.stream_unary("/shuffledp.v1.Shuffler/Submit")()
            try:
                async with asyncio.timeout(_DEADLINE):
                    await call.wait_for_connection()
                    await asyncio.sleep(_BEFORE_LEAVING)
                self.tally.dropped += 1
            except (grpc.aio.AioRpcError, TimeoutError):
                self.tally.failures["no connection for a user who drops out"] += 1
            call.cancel()

    async def _send_alone(
        self,
        stub: "shuffler_pb2_grpc.ShufflerAsyncStub",
        user: int,
        envelopes: Sequence[bytes],
        intended: float,
    ) -> None:
        """Send one user's submissions, one after the other or in a flood."""
        requests = [
            shuffler_pb2.SubmitRequest(task_digest=self._digest, envelope=one) for one in envelopes
        ]
        call, *more = [partial(stub.Submit, one, timeout=_DEADLINE) for one in requests]
        flood: list[asyncio.Task[Outcome | None]] = []
        try:
            with self._waiting(intended):
                if self._plan.fetch_task:
                    fetch = shuffler_pb2.FetchTaskRequest(task_digest=self._digest)
                    await self._persist(partial(stub.FetchTask, fetch, timeout=_DEADLINE), 0)
                if self._users.kinds[user] == Behaviour.FLOODING:
                    flood = [asyncio.create_task(self._submit(one, once=True)) for one in more]
                    more = []
                outcome = await self._submit(call)
            self.tally.acknowledged += self._counted[user] and outcome in _ARRIVED
            for again in more:
                await self._submit(again)
        finally:
            await asyncio.gather(*flood)

    async def _submit(
        self, call: Callable[[], Awaitable[shuffler_pb2.SubmitResponse]], *, once: bool = False
    ) -> Outcome | None:
        """Submit until there is a final answer, or once; None for no or an unexpected one."""
        try:
            found = await (reply(call(), "the shuffler") if once else self._persist(call, 1))
            outcome = Outcome.REPEATED if found.repeated else Outcome.STORED
        except PeerRefusalError as error:
            expected = outcome_of(error)
            if expected is None:
                self.tally.refusals[str(error) or error.status] += 1
                return None
            outcome = expected
        except PeerError as error:  # of one that is not retried
            self._failed(error, 1)
            self.tally.shed += 1
            return None
        self._answered([outcome])
        return outcome

    async def _send_together(
        self,
        stub: "shuffler_pb2_grpc.ShufflerAsyncStub",
        sent: Mapping[int, Sequence[bytes]],
        intended: float,
    ) -> None:
        """Send the submissions of some users in bulk."""
        entries = [(user, envelope) for user, found in sent.items() for envelope in found]
        arrived: set[int] = set()
        with self._waiting(intended):
            for start in range(0, len(entries), self._most):
                owners, envelopes = zip(*entries[start : start + self._most], strict=True)
                request = shuffler_pb2.SubmitBulkRequest(
                    task_digest=self._digest, envelopes=envelopes
                )
                call = partial(stub.SubmitBulk, request, timeout=_BULK_DEADLINE)
                outcomes = outcomes_from_wire(await self._persist(call, len(envelopes)))
                self._answered(outcomes)
                answers = zip(owners, outcomes, strict=False)
                new = {user for user, outcome in answers if outcome in _ARRIVED} - arrived
                self.tally.acknowledged += sum(self._counted[user] for user in new)
                arrived |= new

    async def _persist(self, call: Callable[[], Awaitable[T]], submissions: int) -> T:
        """Call until there is a final answer, with longer and longer pauses."""
        pause, give_up = _FIRST_PAUSE, time.monotonic() + self._plan.patience
        while True:
            try:
                return await reply(call(), "the shuffler")
            except PeerError as error:
                self._failed(error, submissions)
                if time.monotonic() + pause > give_up:
                    raise _OutOfPatienceError("a user gave up") from error
            await asyncio.sleep(pause * random.uniform(1, 1.5))  # noqa: S311  # no secret
            self.tally.retries += 1
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failed(self, error: PeerError, submissions: int) -> None:
        self.tally.failures[str(error)] += 1
        if not isinstance(error, PeerBusyError):
            self.tally.lost += submissions

    def _answered(self, outcomes: Sequence[Outcome]) -> None:
        self.tally.answers.update(outcomes)
        self.tally.reports += self._reports * outcomes.count(Outcome.STORED)

    @contextmanager
    def _waiting(self, intended: float) -> Iterator[None]:
        """Record the wait from the intended time, also of users who give up."""
        try:
            yield
        finally:
            self.tally.waits.record_value(max(1, round(1e6 * (time.monotonic() - intended))))


def run_alone(sender: Sender, times: Iterable[float], places: int) -> Tally:
    """Run a sender in a process of its own."""
    return asyncio.run(sender.run(times, places))
