"""Simulated users who send what was prepared for them, each by their behaviour. Run by a worker."""

import asyncio
import heapq
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from common.errors import PeerBusyError, PeerError, PeerRefusalError, ShuffleDpError
from common.messages.submission import Outcome
from common.runtime.access import CallKind
from common.task.task import Task
from common.wire.submissions import outcomes_from_wire
from deploy.load.arrivals import submissions_of_a_call
from deploy.load.behaviour import COUNTED, FLOOD, Behaviour
from deploy.load.connection import Connection, Destination
from deploy.load.plan import LoadPlan
from deploy.load.prepared_file import Prepared
from deploy.load.tally import Tally, latencies
from protos.shuffledp.v1 import shuffler_pb2

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds before an attempt is made again, doubled each time, and up to a half more by chance."""
_OVERSIZE: Final = bytes(64)
"""What makes an envelope longer than the task's."""
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
"""Where refusals of several kinds have one status."""


class _OutOfPatienceError(ShuffleDpError):
    """A simulated user was not answered for too long."""


def outcome_of(refusal: PeerRefusalError) -> Outcome | None:
    """Say what a refusal of a single submission says of it, as a bulk call would; None for more."""
    return _BY_STATUS.get(refusal.status) or _BY_SENTENCE.get(str(refusal))


class Sender:
    """Plays users; `tally` is what they saw so far."""

    def __init__(
        self, to: Destination, prepared: Prepared, plan: LoadPlan, rng: random.Random
    ) -> None:
        """
        Take what is sent.

        Args:
            to: Where.
            prepared: The users.
            plan: How they come.
            rng: Of pauses between attempts.
        """
        task = Task.from_bytes(prepared.signed.task_bytes)
        self._to = to
        self._prepared = prepared
        self._plan = plan
        self._rng = rng
        self._digest = prepared.signed.digest()
        self._reports = task.reports_per_user
        self._together = submissions_of_a_call(prepared.envelope_bytes)
        self._kinds = [Behaviour(kind) for kind in range(len(Behaviour))]
        self._lines = _Lines(to)
        self._waits = latencies()
        self.tally = Tally()

    async def send(self, first: int, end: int, intended: float) -> None:
        """
        Play some users, `first` up to before `end`: one, or in bulk a call's.

        Args:
            first: The first of them.
            end: The first that is not one of them.
            intended: When they were to begin, on the monotonic clock: waits count from there.
        """
        self.tally.first = min(self.tally.first, intended)
        try:
            if self._plan.mode == "bulk":
                with self._waiting(intended):
                    await self._send_call(first, end)
            else:
                await self._send_user(first, intended)
        except _OutOfPatienceError:
            self.tally.given_up += end - first
        self.tally.finished += end - first
        self.tally.last = max(self.tally.last, time.monotonic())

    async def close(self) -> Tally:
        """Hang up, and give what the users saw."""
        await self._lines.close()
        self.tally.waits = self._waits.encode()
        return self.tally

    # --- one user, one connection -------------------------------------------------------------

    async def _send_user(self, user: int, intended: float) -> None:
        kind = self._kinds[self._prepared.kinds[user]]
        async with Connection(self._to) as connection:
            if kind is Behaviour.DROPPING:
                await self._leave(connection)
                return
            at = int(self._prepared.first_envelope[user])
            envelope = self._prepared.envelopes[at].tobytes()
            if kind is Behaviour.OVERSIZED:
                envelope += _OVERSIZE
            request = self._request(envelope)
            copies = FLOOD - 1 if kind is Behaviour.FLOODING else 0
            flood: list[asyncio.Task[None]] = []
            try:
                with self._waiting(intended):
                    if self._plan.fetch_task:
                        await self._fetch(connection)
                    flood.extend(
                        asyncio.create_task(self._once(connection, request)) for _ in range(copies)
                    )
                    outcome = await self._submit(connection, request)
                if kind in COUNTED and outcome in _ARRIVED:
                    self.tally.acknowledged += 1
                if kind is Behaviour.DUPLICATE:
                    await self._submit(connection, request)
                if kind is Behaviour.CONFLICT:
                    other = self._request(self._prepared.envelopes[at + 1].tobytes())
                    await self._submit(connection, other)
            finally:
                await asyncio.gather(*flood)

    def _request(self, envelope: bytes) -> bytes:
        request = shuffler_pb2.SubmitRequest(task_digest=self._digest, envelope=envelope)
        return request.SerializeToString()

    async def _fetch(self, connection: Connection) -> None:
        request = shuffler_pb2.FetchTaskRequest(task_digest=self._digest).SerializeToString()
        parse = shuffler_pb2.FetchTaskResponse.FromString

        async def attempt() -> None:
            await connection.call("FetchTask", request, parse)

        try:
            await self._persist(attempt, connection, 0)
        except PeerRefusalError as error:
            self.tally.refusals[f"FetchTask: {error}"] += 1

    async def _leave(self, connection: Connection) -> None:
        if await connection.begin_and_leave():
            self.tally.dropped += 1
        else:
            self.tally.failures["no connection for a user who drops out"] += 1

    async def _submit(self, connection: Connection, request: bytes) -> Outcome | None:
        """Submit until there is an answer for good; None for one that nobody should get."""

        async def attempt() -> Outcome | None:
            return await self._answer(connection, request)

        outcome = await self._persist(attempt, connection, 1)
        self._answered(outcome)
        return outcome

    async def _once(self, connection: Connection, request: bytes) -> None:
        """Submit a copy of a flood: whatever becomes of it, it is not made again."""
        try:
            self._answered(await self._answer(connection, request))
        except PeerBusyError as error:
            self.tally.failures[str(error)] += 1
            self.tally.shed += 1
        except PeerError as error:
            self.tally.failures[str(error)] += 1
            self.tally.lost += 1
            self.tally.shed += 1

    async def _answer(self, connection: Connection, request: bytes) -> Outcome | None:
        parse = shuffler_pb2.SubmitResponse.FromString
        try:
            response = await connection.call("Submit", request, parse)
        except PeerRefusalError as error:
            if (outcome := outcome_of(error)) is not None:
                return outcome
            self.tally.refusals[str(error) or error.status] += 1
            return None
        return Outcome.REPEATED if response.repeated else Outcome.STORED

    # --- bulk ------------------------------------------------------------------------------------

    async def _send_call(self, first: int, end: int) -> None:
        """Send the submissions of some users together; those who drop out leave by themselves."""
        kinds = self._prepared.kinds[first:end].tolist()
        leaving = [
            asyncio.create_task(self._leave(Connection(self._to)))
            for _ in range(kinds.count(Behaviour.DROPPING))
        ]
        entries, owners = self._entries(kinds, first, end)
        arrived: set[int] = set()
        try:
            for start in range(0, len(entries), self._together):
                part = slice(start, start + self._together)
                outcomes = await self._submit_bulk(entries[part])
                self._answered(*outcomes)
                arrived.update(
                    owner
                    for owner, outcome in zip(owners[part], outcomes, strict=False)
                    if outcome in _ARRIVED
                )
        finally:
            self.tally.acknowledged += sum(kinds[user] in COUNTED for user in arrived)
            await asyncio.gather(*leaving)

    def _entries(self, kinds: list[int], first: int, end: int) -> tuple[list[bytes], list[int]]:
        """Give each submission as a field of a bulk request, and which user's it is."""
        starts = self._prepared.first_envelope[first : end + 1]
        base, size = int(starts[0]), self._prepared.envelope_bytes
        raw = self._prepared.envelopes[base : int(starts[-1])].tobytes()
        entries: list[bytes] = []
        owners: list[int] = []
        head, long_head = _field_head(size), _field_head(size + len(_OVERSIZE))
        for user, (kind, start) in enumerate(zip(kinds, (starts - base).tolist(), strict=False)):
            if kind == Behaviour.DROPPING:
                continue
            envelope = raw[start * size : (start + 1) * size]
            field = head + envelope
            if kind in {Behaviour.HONEST, Behaviour.MALFORMED}:
                made = [field]
            elif kind == Behaviour.OVERSIZED:
                made = [long_head + envelope + _OVERSIZE]
            elif kind == Behaviour.CONFLICT:
                made = [field, head + raw[(start + 1) * size : (start + 2) * size]]
            else:
                made = [field] * (2 if kind == Behaviour.DUPLICATE else FLOOD)
            entries += made
            owners += [user] * len(made)
        return entries, owners

    async def _submit_bulk(self, entries: list[bytes]) -> list[Outcome]:
        # As protocol buffers write it, without making a message of a thousand copies first.
        request = b"\x0a" + bytes([len(self._digest)]) + self._digest + b"".join(entries)
        parse = shuffler_pb2.SubmitBulkResponse.FromString
        async with self._lines.free() as connection:

            async def attempt() -> list[Outcome]:
                response = await connection.call("SubmitBulk", request, parse)
                return outcomes_from_wire(response)

            try:
                return await self._persist(attempt, connection, len(entries))
            except PeerRefusalError as error:
                self.tally.refusals[str(error) or error.status] += len(entries)
                return []

    # --- both ------------------------------------------------------------------------------------

    async def _persist(
        self, attempt: Callable[[], Awaitable[T]], connection: Connection, submissions: int
    ) -> T:
        """Make an attempt again, after longer and longer pauses, until there is an answer."""
        pause, give_up = _FIRST_PAUSE, time.monotonic() + self._plan.patience
        while True:
            try:
                return await attempt()
            except PeerError as error:
                self.tally.failures[str(error)] += 1
                if not isinstance(error, PeerBusyError):
                    self.tally.lost += submissions
                if time.monotonic() + pause > give_up:
                    raise _OutOfPatienceError("a user gave up") from error
            connection.renew()
            await asyncio.sleep(pause * (1 + self._rng.random() / 2))
            self.tally.retries += 1
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _answered(self, *outcomes: Outcome | None) -> None:
        for outcome in outcomes:
            if outcome is not None:
                self.tally.answers[outcome] += 1
        self.tally.reports += self._reports * outcomes.count(Outcome.STORED)

    @contextmanager
    def _waiting(self, intended: float) -> Iterator[None]:
        """Record how long it took, from the intended moment: also the wait of who gives up."""
        try:
            yield
        finally:
            self._waits.record_value(max(1, round(1e6 * (time.monotonic() - intended))))


class _Lines:
    """Connections for bulk calls, each with as many at once as the shuffler lets it have."""

    def __init__(self, to: Destination) -> None:
        self._to = to
        self._connections: list[Connection] = []
        self._free: list[int] = []

    @asynccontextmanager
    async def free(self) -> AsyncIterator[Connection]:
        """Give a connection with a place for one call more; open another if there is none."""
        share = CallKind.BULK.value.share
        if not self._free:
            self._free = [len(self._connections) * share + place for place in range(share)]
            self._connections.append(Connection(self._to))
        place = heapq.heappop(self._free)
        try:
            yield self._connections[place // share]
        finally:
            heapq.heappush(self._free, place)

    async def close(self) -> None:
        """Hang up."""
        for connection in self._connections:
            await connection.close()


def _field_head(length: int) -> bytes:
    """Begin a field `envelopes` of a SubmitBulkRequest: its tag, and its length as a varint."""
    head = bytearray(b"\x12")
    while length >= 0x80:  # noqa: PLR2004  # seven bits a byte
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)
