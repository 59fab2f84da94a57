"""Send simulated users' sealed submissions by their behaviours, and count the answers."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import grpc

from shuffledp.common.crypto.privacy_tokens import TOKEN_BYTES
from shuffledp.common.errors import PeerBusyError, PeerError, PeerRefusalError
from shuffledp.common.messages.submission import STORED_OUTCOMES, Outcome
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.wire.fields import MAX_MESSAGE_BYTES
from shuffledp.common.wire.submissions import MAX_BULK_ENVELOPES, outcomes_from_wire
from shuffledp.deploy.load.behaviour import Behaviour, LoadPlan, Tally
from shuffledp.deploy.load.users import SealedUsers
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc

T = TypeVar("T")
_Stub: TypeAlias = "shuffler_pb2_grpc.ShufflerAsyncStub"
_Sent = Mapping[int, Sequence[bytes]]

_DEADLINE: Final = 60.0
_BULK_DEADLINE: Final = 330.0
"""Deadlines in seconds, longer than the shuffler's."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds before a retry: doubled each time, plus up to half at random."""
_BEFORE_LEAVING: Final = 0.02
"""Seconds for which a user who drops out keeps the call open."""
_OWN_CONNECTION: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", round(1000 * _FIRST_PAUSE)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * _LONGEST_PAUSE)),
)
_BY_STATUS: Final = {
    "INVALID_ARGUMENT": Outcome.MALFORMED,
    "UNAUTHENTICATED": Outcome.UNAUTHENTICATED,
}
_BY_SENTENCE: Final = {
    "this submission id was used with other bytes": Outcome.CONFLICT,
    "this token was used for this task, with another submission": Outcome.TOKEN_USED,
    "the task's batch no longer collects": Outcome.CLOSED,
}
"""Outcomes of refusals that share one status, by message."""


class Destination(NamedTuple):
    """Address that simulated users connect to."""

    address: str
    authority: bytes | None
    """File of trust; None for plaintext on loopback."""

    def open(self) -> grpc.aio.Channel:
        """Open a separate connection without automatic retries; refuse plaintext to other hosts."""
        return open_channel(self.address, "shuffler", self.authority, options=_OWN_CONNECTION)


def submissions_of_a_call(envelope_bytes: int) -> int:
    """Return the number of submissions per bulk call: half of the shuffler's maximum."""
    each = envelope_bytes + TOKEN_BYTES
    return max(1, min(MAX_BULK_ENVELOPES // 2, MAX_MESSAGE_BYTES // (2 * each)))


def outcome_of(refusal: PeerRefusalError) -> Outcome | None:
    """Return the outcome by which a bulk call reports this refusal; None if there is none."""
    return _BY_STATUS.get(refusal.status) or _BY_SENTENCE.get(str(refusal))


@dataclass(eq=False)
class Sender:
    """Sends users' submissions, and counts answers in `tally`."""

    to: Destination
    users: SealedUsers
    plan: LoadPlan
    times: Iterable[float]
    """Scheduled start of each user (in bulk: call), ascending on the monotonic clock; waits count
    from it. 0: start when fewer than `max_in_flight` are in flight."""
    max_in_flight: int
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._digest = self.users.signed.digest()
        self._most = submissions_of_a_call(int(self.users.sizes.max()))

    async def run(self, progress: Callable[[Tally], None] = lambda _: None) -> Tally:
        """Send all users; call `progress` with the tally after each user or call."""
        room, n_users = asyncio.Semaphore(self.max_in_flight), self.users.n_users
        together = self._most if self.plan.mode == "bulk" else 1

        async def send(users: range, intended: float) -> None:
            try:
                await self._send(users, intended)
            finally:
                room.release()
            progress(self.tally)

        async with asyncio.TaskGroup() as group:
            for first, at in zip(range(0, n_users, together), self.times, strict=False):
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                await room.acquire()
                users = range(first, min(first + together, n_users))
                group.create_task(send(users, at or time.monotonic()))
        return self.tally

    async def _send(self, users: range, intended: float) -> None:
        """Send some users' submissions over one connection; users who drop out open their own."""
        tally, submissions = self.tally, self.users.submissions
        tally.first = min(tally.first, intended)
        sent = {user: found for user in users if (found := submissions(user))}
        try:
            if sent:
                async with self.to.open() as channel:
                    send = self._send_together if self.plan.mode == "bulk" else self._send_alone
                    await send(shuffler_pb2_grpc.ShufflerStub(channel), sent, intended)
        except PeerError:
            tally.given_up += len(sent)
        except PeerRefusalError as error:  # of the task or of a bulk call
            tally.refusals[str(error) or error.status] += len(sent)
        for _ in range(len(users) - len(sent)):
            await self._leave()
        tally.finished += len(users)
        tally.last = max(tally.last, time.monotonic())

    async def _leave(self) -> None:
        """Connect, start a submission, and hang up without sending."""
        async with self.to.open() as channel:
            call: Any = channel.stream_unary("/shuffledp.v1.Shuffler/Submit")()
            try:
                async with asyncio.timeout(_DEADLINE):
                    await call.wait_for_connection()
                    await asyncio.sleep(_BEFORE_LEAVING)
                self.tally.dropped += 1
            except (grpc.aio.AioRpcError, TimeoutError):
                self.tally.failures["no connection for a user who drops out"] += 1
            call.cancel()

    async def _send_alone(self, stub: _Stub, sent: _Sent, intended: float) -> None:
        [(user, (envelope, *more))] = sent.items()
        flood: list[asyncio.Task[Outcome | None]] = []
        try:
            with self._waiting(intended):
                if self.plan.fetch_task:
                    fetch = shuffler_pb2.FetchTaskRequest(task_digest=self._digest)
                    await self._persist(partial(stub.FetchTask, fetch, timeout=_DEADLINE), 0)
                if self.users.kinds[user] == Behaviour.FLOODING:
                    copies = (self._submit(stub, user, copy, once=True) for copy in more)
                    flood, more = list(map(asyncio.create_task, copies)), []
                outcome = await self._submit(stub, user, envelope)
            self.tally.acknowledged += outcome in STORED_OUTCOMES
            for again in more:
                await self._submit(stub, user, again)
        finally:
            await asyncio.gather(*flood)

    async def _submit(
        self, stub: _Stub, user: int, envelope: bytes, *, once: bool = False
    ) -> Outcome | None:
        """Submit once, or until a final answer; return None if it is missing or unexpected."""
        request = shuffler_pb2.SubmitRequest(task_digest=self._digest, envelope=envelope)
        request.token = self.users.token(user)
        try:
            call = partial(stub.Submit, request, timeout=_DEADLINE)
            found = await self._persist(call, 1, once=once)
            outcome: Outcome | None = Outcome.REPEATED if found.repeated else Outcome.STORED
        except PeerRefusalError as error:
            if (outcome := outcome_of(error)) is None:
                self.tally.refusals[str(error) or error.status] += 1
        except PeerError:
            if not once:
                raise
            outcome = None
            self.tally.shed += 1
        if outcome is not None:
            self.tally.answers[outcome] += 1
        return outcome

    async def _send_together(self, stub: _Stub, sent: _Sent, intended: float) -> None:
        entries = [(user, envelope) for user, found in sent.items() for envelope in found]
        arrived: set[int] = set()
        with self._waiting(intended):
            for start in range(0, len(entries), self._most):
                owners, envelopes = zip(*entries[start : start + self._most], strict=True)
                request = shuffler_pb2.SubmitBulkRequest(envelopes=envelopes)
                request.task_digest = self._digest
                request.tokens.extend(filter(None, map(self.users.token, owners)))
                call = partial(stub.SubmitBulk, request, timeout=_BULK_DEADLINE)
                outcomes = outcomes_from_wire(await self._persist(call, len(envelopes)))
                self.tally.answers.update(outcomes)
                before, answers = len(arrived), zip(owners, outcomes, strict=False)
                arrived |= {user for user, outcome in answers if outcome in STORED_OUTCOMES}
                self.tally.acknowledged += len(arrived) - before

    async def _persist(
        self, call: Callable[[], Awaitable[T]], submissions: int, *, once: bool = False
    ) -> T:
        """Call once, or with exponential backoff until a final answer or the end of `patience`."""
        pause, give_up = _FIRST_PAUSE, time.monotonic() + self.plan.patience
        while True:
            try:
                return await reply(call(), "the shuffler")
            except PeerError as error:
                self.tally.failures[str(error)] += 1
                if not isinstance(error, PeerBusyError):
                    self.tally.lost += submissions
                if once or time.monotonic() + pause > give_up:
                    raise
            await asyncio.sleep(pause * random.uniform(1, 1.5))  # noqa: S311  # not used as a secret
            self.tally.retries += 1
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _waiting(self, intended: float) -> Iterator[None]:
        """Record the wait since the intended time, even for users who give up."""
        try:
            yield
        finally:
            self.tally.waits.record_value(max(1, round(1e6 * (time.monotonic() - intended))))


def run_alone(sender: Sender) -> Tally:
    """Run a sender in a separate process."""
    return asyncio.run(sender.run())
