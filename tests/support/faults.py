"""
Crashes before and after each commit, change of a key file and call between parties.

Calls cross an in-memory network that loses requests and responses. A boundary has a party, an act
and a side of it. A crash is a BaseException, so that no part of a party survives by handling it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, Self, TypeVar

from shuffledp.common.errors import PeerError, PeerRefusalError, ShuffleDpError
from shuffledp.common.runtime.database import Database
from shuffledp.common.runtime.state_directory import StateDirectory

P = ParamSpec("P")
T = TypeVar("T")

PartyName = Literal["user_agent", "shuffler", "relay", "analyzer", "issuer", "stranger"]
Loss = Literal["request", "response"]

_PASSING: Final = frozenset({"UNAVAILABLE", "ABORTED"})
"""Statuses of the project's errors after which a call is retried."""


class Boundary(NamedTuple):
    """One place where a crash can change the outcome."""

    party: PartyName
    act: str
    side: Literal["before", "after"]


class Crash(BaseException):
    """The process has crashed."""


@dataclass
class Faults:
    """Records crossed boundaries, and crashes the party at one of them."""

    crossed: list[Boundary] = field(default_factory=list)
    crashes: list[Boundary] = field(default_factory=list)
    countdown: int | None = None
    """Boundaries until the crash; None for none."""
    suspended: bool = False
    """Whether boundaries are ignored: while a test reads files, or after the last fault."""

    def due(self, boundary: Boundary) -> bool:
        """Record a boundary; return whether the party crashes at it."""
        if self.suspended or boundary.party == "stranger":
            return False
        self.crossed.append(boundary)
        if self.countdown is None:
            return False
        self.countdown -= 1
        if self.countdown >= 0:
            return False
        self.countdown = None
        self.crashes.append(boundary)
        return True


class Life:
    """One run of a party's process, from start to stop or crash."""

    def __init__(self, party: PartyName, faults: Faults) -> None:
        self.party: PartyName = party
        self.over = asyncio.Event()
        self._faults = faults

    def cross(self, act: str, side: Literal["before", "after"]) -> None:
        """
        Cross a boundary.

        Raises:
            Crash: The process crashes here, or has crashed before.
        """
        if self.over.is_set() or self._faults.due(Boundary(self.party, act, side)):
            self.over.set()
            raise Crash

    async def around(self, act: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do something, with a boundary before and after it."""
        self.cross(act, "before")
        done = await work()
        self.cross(act, "after")
        return done


def add_boundaries(database: Database, life: Life) -> None:
    """Make an open database's transactions boundaries."""
    # No crash here loses written data, so that waiting for the disk would prove nothing.
    database._thread.submit(database._connection.execute, "PRAGMA synchronous=OFF").result()
    run, empty_log = database.run, database.empty_log

    async def run_around(
        work: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        states = [str(each.value) for each in args if isinstance(each, Enum)]
        act = " ".join([work.__name__.removeprefix("_").replace("_", " "), *states])
        return await life.around(act, lambda: run(work, *args, **kwargs))

    async def empty_around() -> None:
        await life.around("empty log", empty_log)

    database.run = run_around  # type: ignore[method-assign]
    database.empty_log = empty_around  # type: ignore[method-assign]


class FaultyState(StateDirectory):
    """A state directory in which creating and destroying a secret are boundaries."""

    life: Life

    @classmethod
    def of(cls, path: Path, life: Life) -> Self:
        """Open a directory."""
        state = cls.open(path)
        object.__setattr__(state, "life", life)
        return state

    def secret(self, name: str, make: Callable[[], bytes], *, public: str | None = None) -> bytes:
        """See StateDirectory."""

        def crossing() -> bytes:
            self.life.cross("make key", "before")
            return make()

        made = not (self.path / name).exists()
        secret = super().secret(name, crossing, public=public)
        if made:
            self.life.cross("make key", "after")
        return secret

    def destroy(self, name: str) -> None:
        """See StateDirectory."""
        self.life.cross("destroy key", "before")
        super().destroy(name)
        self.life.cross("destroy key", "after")


@dataclass
class Network:
    """Calls between parties, and their losses."""

    losses: dict[PartyName, Loss] = field(default_factory=dict)
    """What the next call to a party loses."""

    async def call(
        self, caller: Life, callee: Life, act: str, work: Callable[[], Awaitable[T]]
    ) -> T:
        """
        Make a call, with a boundary before and after it.

        Raises:
            PeerError: The call was lost, or the called party is down or crashed.
            PeerRefusalError: The party refused.
        """
        caller.cross(act, "before")
        lost = self.losses.pop(callee.party, None)
        if lost == "request" or callee.over.is_set():
            raise PeerError("nobody answers")
        answer = await _served(callee, work)
        caller.cross(act, "after")
        if lost == "response":
            raise PeerError("the answer was lost")
        return answer


async def _served(callee: Life, work: Callable[[], Awaitable[T]]) -> T:
    """Let a party serve a call, and map its errors as runtime/rpc does."""
    serving = asyncio.ensure_future(work())
    dying = asyncio.ensure_future(callee.over.wait())
    await asyncio.wait({serving, dying}, return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    if callee.over.is_set():
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        raise PeerError("the connection broke")
    try:
        return serving.result()
    except ShuffleDpError as error:
        if error.status in _PASSING:
            raise PeerError(error.status) from error
        raise PeerRefusalError(error.status, str(error)) from error
    except Exception as error:
        raise PeerError("INTERNAL") from error
