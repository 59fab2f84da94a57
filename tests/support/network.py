"""A network in memory that loses what it is told to lose, between parties that may crash."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from common.errors import PeerError, PeerRefusalError, ShuffleDpError
from tests.support.faults import Life, PartyName

T = TypeVar("T")

Loss = Literal["request", "response"]

_PASSING: Final = frozenset({"UNAVAILABLE", "ABORTED"})
"""Of the statuses that the project's errors name, those after which a call is made again."""


@dataclass
class Network:
    """What the next call between two parties loses."""

    losses: dict[PartyName, Loss] = field(default_factory=dict)
    """By who is called."""

    async def call(
        self, caller: Life, callee: Life, act: str, work: Callable[[], Awaitable[T]]
    ) -> T:
        """
        Make a call, with a boundary on either side of it.

        Raises:
            PeerError: It was lost on its way, or the party is down, or crashed meanwhile.
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
    """Let a party serve a call, and turn its errors into what a caller sees (see runtime/rpc)."""
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
