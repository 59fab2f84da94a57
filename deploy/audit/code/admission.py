"""
How many calls a connection may have under way: no more than its share, over IPv6 as over IPv4.

Every kind of call is filled up to its limits, and beyond them.
"""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from typing import Final

from common.errors import OverloadError, ShareError
from common.errors import ShareError as SideCallError
from common.runtime.access import CallKind
from common.runtime.admission_interceptor import ConcurrencyLimits as Places
from common.runtime.admission_interceptor import Queue as Line
from deploy.audit.checks import Checks
from shuffler.admission import ConnectionCount

_FAMILIES: Final = ("ipv4:192.0.2.1:", "ipv6:[2001:db8::1]:", "ipv6:%5B2001:db8::1%5D:")
"""How gRPC's names of connections begin; a port follows."""
_SOCKET: Final = "unix:"
_SHARE: Final = 2
_SOON: Final = 0.002
"""Seconds for which a call waits whose turn does not come."""


def check_admission(checks: Checks) -> None:
    """Check places, lines and counted submissions."""
    for family in _FAMILIES:
        for kind in CallKind:
            _check_places(checks, kind, family)
        _check_counts(checks, family)
    asyncio.run(_check_lines(checks))


def _check_places(checks: Checks, kind: CallKind, family: str) -> None:
    places, limits = Places(), kind.value
    full = SideCallError if limits.aside else OverloadError
    with ExitStack() as held:
        for _ in range(limits.share):
            held.enter_context(places.taken(kind, f"{family}0"))
        beyond = full if limits.share == limits.places else ShareError
        checks.must(
            "a connection has no more calls under way than its share",
            _refusal(places, kind, f"{family}0") is beyond,
        )
        for number in range(limits.share, limits.places):
            held.enter_context(places.taken(kind, f"{family}{number // limits.share}"))
        checks.must(
            "all connections together have no more calls under way than there are places",
            _refusal(places, kind, f"{family}{limits.places}") is full
            and _refusal(places, kind, _SOCKET) is full,
        )
    with ExitStack() as held:
        for _ in range(limits.places):
            held.enter_context(places.taken(kind, _SOCKET))
        checks.must("places are given back when calls end", _refusal(places, kind, _SOCKET) is full)
    checks.must(
        "places are given back when calls end", _refusal(places, kind, f"{family}0") is None
    )


def _refusal(places: Places, kind: CallKind, peer: str) -> type[OverloadError] | None:
    """Give how one more call of a connection is refused; None if it is not."""
    try:
        with places.taken(kind, peer):
            return None
    except OverloadError as error:
        return type(error)


def _check_counts(checks: Checks, family: str) -> None:
    count, one, other = ConnectionCount(_SHARE), f"{family}1", f"{family}2"
    first = [_counted(count, one, 1) for _ in range(_SHARE + 1)]
    checks.must(
        "submissions of a connection are counted, however it is connected",
        first == [True] * _SHARE + [False]
        and not _counted(count, other, _SHARE + 1)
        and _counted(count, other, _SHARE)
        and not _counted(count, other, 1),
    )


def _counted(count: ConnectionCount, peer: str, submissions: int) -> bool:
    try:
        count.take(peer, submissions)
    except ShareError:
        return False
    return True


async def _check_lines(checks: Checks) -> None:
    for family in _FAMILIES:
        line, own = Line(_SHARE, 1), [f"{family}{port}" for port in range(_SHARE + 1)]
        async with AsyncExitStack() as held:
            await held.enter_async_context(line.turn(own[0], 1.0))
            checks.must(
                "a connection has no more turns than its share",
                await _turned_away(line, own[0]) is ShareError,
            )
            await held.enter_async_context(line.turn(own[1], 1.0))
            checks.must(
                "no more are read at once than there are turns",
                await _turned_away(line, own[2]) is OverloadError,
            )
        checks.must(
            "turns are given back when they end",
            [await _turned_away(line, peer) for peer in own] == [None] * len(own),
        )


async def _turned_away(line: Line, peer: str) -> type[OverloadError] | None:
    """Give how a connection is told that its turn did not come; None if it came."""
    try:
        async with line.turn(peer, _SOON):
            return None
    except OverloadError as error:
        return type(error)
