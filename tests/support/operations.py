"""What can happen to the system, as data: so that lists of it can be drawn, shrunk and kept."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from common.crypto.signing import SignedTask
from common.errors import PeerError, PeerRefusalError, ShuffleDpError
from common.messages.batch import BatchId, BatchManifest, BatchState
from tests.support.faults import Crash
from tests.support.network import Loss
from tests.support.world import PERSONS, World

Act = Literal[
    "publish", "contribute", "resend", "malformed", "stranger", "advance", "wait", "restart",
    "replay batch", "rotate", "ask",
]  # fmt: skip


_PATIENCE: Final = 20.0
"""Seconds that a list of operations may take before it counts as hanging."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that happens, and what goes wrong meanwhile."""

    act: Act
    what: int = 0
    """Which task, party, way of being malformed, or seconds: see the table below."""
    who: int = 0
    lost: Loss | None = None
    """Of the next call to the shuffler, and of the next to the analyzer."""
    crash: int | None = None
    """Boundaries until whoever crosses the next crashes; None for no crash."""


async def play(path: Path, operations: Sequence[Operation]) -> World:
    """Run operations one after the other on a new system, checking after each; return it."""
    world = World(path)
    async with asyncio.timeout(_PATIENCE):
        await world.start()
        try:
            await world.publish(2, 3)
            await _play(world, operations)
        finally:
            await world.end()
    return world


async def _play(world: World, operations: Sequence[Operation]) -> None:
    for operation in operations:
        if operation.lost is not None:
            world.around.network.losses = {
                "shuffler": operation.lost,
                "analyzer": operation.lost,
            }
        if operation.crash is not None:
            world.around.faults.crash_after(operation.crash)
        await _ACTS[operation.act](world, operation)
        await world.check()
    await world.check_end()


def _task(world: World, operation: Operation) -> SignedTask:
    return world.signed[min(operation.what // 6, len(world.signed) - 1)]


async def _publish(world: World, operation: Operation) -> None:
    with contextlib.suppress(ShuffleDpError, Crash):
        await world.publish(1 + operation.what % 4, 1 + operation.who % 6)


async def _contribute(world: World, operation: Operation) -> None:
    """Let a person answer; one in four presses the button twice."""
    calls = 2 if operation.what % 4 == 0 else 1
    answer = (operation.who % PERSONS, _task(world, operation))
    await asyncio.gather(*(world.contribute(*answer) for _ in range(calls)))


async def _wait(world: World, operation: Operation) -> None:
    world.around.clock.seconds += 100 * (operation.what % 8)


async def _malformed(world: World, operation: Operation) -> None:
    """A stranger sends what is no submission: random bytes, or one with a bit changed."""
    signed = _task(world, operation)
    envelopes = [each.envelope for each in await world.saved(signed.digest())]
    good = envelopes[operation.who % len(envelopes)] if envelopes else bytes(100)
    place = operation.who % len(good)
    bad = [
        b"",
        good[:-1],
        good + b"\0",
        bytes(len(good)),
        good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :],
    ][operation.what % 5]
    try:
        await world.submit_as_stranger(signed.digest(), bad)
    except ShuffleDpError:
        return
    raise AssertionError("what is no submission was taken")


async def _stranger(world: World, operation: Operation) -> None:
    """Somebody on the network sends again what a device has sent, to its task and to another."""
    for signed in world.signed:
        for saved in (await world.saved(_task(world, operation).digest()))[:2]:
            if signed.digest() == saved.task_digest and saved.state.value == "pending":
                continue  # nobody can have seen it for certain
            try:
                await world.submit_as_stranger(signed.digest(), saved.envelope)
            except ShuffleDpError:
                continue


async def _replay_batch(world: World, operation: Operation) -> None:
    """
    A whole batch is delivered again: as it was, under another id, or with another size.

    The last two only once the shuffler knows that it arrived: before that, nobody but the shuffler
    can deliver, and it knows one id and one size.
    """
    if not world.shuffler.delivered:
        return
    manifest, chunks = world.shuffler.delivered[operation.who % len(world.shuffler.delivered)]
    arrived = await world.batch_state(manifest.task_digest) is BatchState.ERASED
    way = operation.what % 3 if arrived else 0
    other = BatchManifest(
        task_digest=manifest.task_digest,
        batch_id=BatchId(bytes(16)) if way == 1 else manifest.batch_id,
        n_users=manifest.n_users + (way == 2),
        n_reports=manifest.n_reports,
    )
    try:
        await world.deliver_as_stranger(other, list(chunks))
    except (PeerError, PeerRefusalError):
        return
    assert way == 0, "another batch was taken for the same task"
    await world.analyzer.settle()


_ACTS: Final[Mapping[Act, Callable[[World, Operation], Awaitable[None]]]] = MappingProxyType(
    {
        "publish": _publish,
        "contribute": _contribute,
        "resend": lambda world, _: world.resend(),
        "malformed": _malformed,
        "stranger": _stranger,
        "advance": lambda world, _: world.advance(),
        "wait": _wait,
        "restart": lambda world, operation: world.restart(operation.what % 3),
        "replay batch": _replay_batch,
        "rotate": lambda world, _: world.rotate(),
        "ask": lambda world, _: world.ask(),
    }
)
