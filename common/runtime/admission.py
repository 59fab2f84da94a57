"""
Admission of a service's calls, whichever way they come: the limits on their memory and time.

Limits hold in total, per address and per connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

from google.protobuf.message import DecodeError

from shuffledp.common import errors
from shuffledp.common.runtime import access, logs
from shuffledp.common.runtime.access import Call, CallKind, OperatorToken
from shuffledp.common.runtime.concurrency import ConcurrencyLimit, Queue
from shuffledp.common.runtime.peer import Networks, Peer

M = TypeVar("M")
A = TypeVar("A")
FORESEEN: Final = ("shuffledp-foreseen", "1")
"""Sent with every ShuffleDpError except OverloadError. RESOURCE_EXHAUSTED without it means a
temporary limit, and clients retry; with it, a budget is spent, and they must not."""
NOT_ARRIVED: Final = "the request did not arrive completely"
_NOT_FINISHED: Final = "the call did not finish"
_HASTE: Final = 5
"""While other calls wait for read slots, the time to send a request is shorter by this factor."""


class Deadline:
    """Raises DeadlineError in a block that takes longer than `seconds`."""

    __slots__ = ("_refusal", "_seconds", "_timeout", "_what")

    def __init__(self, seconds: float, what: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._seconds = seconds
        self._what = what
        self._refusal: errors.ShuffleDpError | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    @contextmanager
    def reading(self, seconds: float) -> Generator[None]:
        """Shorten the deadline to `seconds` while a request is read; reuse the timer, for speed."""
        end, whole = self._timeout.when(), (self._what, self._seconds)
        now = asyncio.get_running_loop().time
        if end is not None and (soon := now() + seconds) < end:
            self._timeout.reschedule(soon)
            self._what, self._seconds = NOT_ARRIVED, seconds
        yield
        if self._refusal is not None:
            raise self._refusal
        self._timeout.reschedule(end)
        self._what, self._seconds = whole

    def refuse(self, error: errors.ShuffleDpError) -> None:
        """End the block with an error, while it waits for a slot or a request."""
        self._refusal = error
        if not self._timeout.expired():
            self._timeout.reschedule(0.0)  # at once: it is past

    async def __aexit__(self, *raised: Any) -> None:  # noqa: ANN401, PYI036  # passed on to asyncio
        try:
            await self._timeout.__aexit__(*raised)
        except TimeoutError as error:
            late = errors.DeadlineError(f"{self._what} within {self._seconds:g} seconds")
            raise self._refusal or late from error


class AdmittedCall:
    """A call that counts towards the limits until it is answered, and may hold a read slot."""

    __slots__ = ("_has_slot", "_kind", "_limit", "_queue", "deadline", "source")

    def __init__(
        self, limit: ConcurrencyLimit, queue: Queue | None, kind: CallKind, source: Peer
    ) -> None:
        """Admit a call; raise OverloadError, or ShareError beyond its share or if it is minor."""
        self.source = source
        self.deadline = Deadline(kind.value.seconds, _NOT_FINISHED)
        self._kind = kind.value
        self._limit = limit
        self._queue = queue
        self._has_slot = False
        if not limit.take(self):
            number = self._kind.calls
            raise limit.refusal(
                source,
                f"no place is free in this connection's share of {number} calls of this kind",
                minor=self._kind.minor,
            )

    def peer(self) -> str:
        """Identify the connection, for servicers; empty if it cannot be told from others."""
        return self.source.connection

    async def wait_for_slot(self) -> float:
        """Wait for a read slot, if calls of this kind queue; return the seconds to send in."""
        seconds = self._kind.read_seconds
        if self._queue is None:
            return seconds
        await self._queue.enter(self, seconds)
        self._has_slot = True
        return seconds / _HASTE if self._queue.is_waiting else seconds

    async def run(
        self,
        read: Callable[[], Awaitable[bytes]],
        parse: Callable[[bytes], M],
        answer: Callable[[M], Awaitable[A]],
        serialize: Callable[[A], bytes],
    ) -> bytes:
        """
        Read one request in a read slot, and return its answer. Run within the deadline.

        The request is parsed when it is complete: parsed, it can take 20 times the memory.

        Raises OverloadError if no slot was free in time, or the call was displaced; DeadlineError.
        """
        seconds = await self.wait_for_slot()
        with self.deadline.reading(seconds):
            raw = await read()
        self.arrived(len(raw))
        request = parse(raw)
        del raw
        sent = serialize(await answer(request))
        if len(sent) <= access.LONG_MESSAGE:
            self.free_slot()
        return sent

    def arrived(self, request_bytes: int = 0) -> None:
        """Keep the place, and a slot if request or answer may be long: the request has arrived."""
        self._limit.arrived(self)
        if self._has_slot and self._queue is not None:
            if request_bytes > access.LONG_MESSAGE or self._kind.long_answers:
                self._queue.arrived(self)
            else:
                self.free_slot()

    def displace(self) -> None:
        """Refuse the call, whose request has not arrived, for one with a smaller share."""
        reason = "no request came while others needed the place; retry later"
        self.deadline.refuse(errors.ShareError(reason))

    def free_slot(self) -> None:
        """Free the read slot if the call holds one."""
        if self._has_slot and self._queue is not None:
            self._has_slot = False
            self._queue.leave(self)

    def close(self, _context: object = None) -> None:
        """Free the read slot and end the call. May be repeated."""
        self.free_slot()
        self._limit.free(self)


class Admission:
    """Admits the calls of one service by the access table (`access.py`)."""

    def __init__(
        self,
        *,
        token: OperatorToken | None = None,
        on_error: Callable[[BaseException], None] = lambda _error: None,
        relays: Networks = (),
    ) -> None:
        """
        Call `on_error` with every error; `token` is None without an operator.

        Calls from `relays` do not count as those of one address.
        """
        self.relays: Final = relays
        self._token = token
        self._on_error = on_error
        self._limits = {
            kind: ConcurrencyLimit(kind.value.calls, kind.value.peer_calls) for kind in CallKind
        }
        self._queues = {
            kind: Queue(kind.value.reads, kind.value.peer_reads)
            for kind in CallKind
            if kind.value.reads
        }

    def check_caller(self, call: Call, names: frozenset[str] | None, shown: str | None) -> None:
        """Check a caller's certificate and token as `access.check_caller` does."""
        access.check_caller(call.caller, names, shown, self._token)

    def admit(self, call: Call, peer: Peer) -> AdmittedCall:
        """Admit a call, or raise the errors of `AdmittedCall`."""
        kind = call.kind
        return AdmittedCall(self._limits[kind], self._queues.get(kind), kind, peer)

    def refusal(self, error: Exception) -> tuple[str, str, bool]:
        """Report an error; return its status, a message without details, and if it is foreseen."""
        self._on_error(error)
        if isinstance(error, errors.ShuffleDpError):
            return error.status, str(error), not isinstance(error, errors.OverloadError)
        logs.event("internal error", logs.error_fields(error), level="ERROR")
        return "INTERNAL", "internal error", False


def read_message(parse: Callable[[bytes], M], raw: bytes) -> M:
    """Parse a message, or raise WireError."""
    try:
        return parse(raw)
    except DecodeError as error:
        raise errors.WireError("the request is not a message of this call") from error
