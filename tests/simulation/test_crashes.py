"""
A crash at any boundary, followed by a restart, changes no outcome.

A boundary is a point before or after a transaction, a change of a key file, or a call between
parties. A run without a crash records all boundaries.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn

import pytest

from shuffledp.common.errors import BatchStateError, PeerError
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchState
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.batch_states import TRANSITIONS
from shuffledp.user_agent.device_store import SubmissionState
from tests.support.faults import Boundary, Crash
from tests.support.ledger_entries import releases
from tests.support.world import World

_PERSONS: Final = 3
Begin = Callable[[], None]
"""Starts the counting of boundaries, after the set-up."""


async def _everybody_answers(world: World) -> None:
    """Let each person retry until the answer is saved, and send saved answers until they arrive."""
    [signed] = world.signed
    for person in range(_PERSONS):
        while len(await world.saved(signed.digest())) <= person:
            await world.contribute(person, signed)
            await world.restart_crashed()
    while any(each.state is SubmissionState.PENDING for each in await world.saved(signed.digest())):
        await world.resend()
        await world.restart_crashed()


async def _released(world: World, begin: Begin) -> None:
    """Run a batch with enough users: it is released, and a late user is refused."""
    signed = await world.publish(_PERSONS, _PERSONS)
    begin()
    await _everybody_answers(world)
    while await world.batch_state(signed.digest()) is BatchState.COLLECTING:
        await world.advance()
        await world.restart_crashed()
    await world.contribute(_PERSONS, signed)
    await world.check_end()
    [entry] = releases(await world.analyzer.store.ledger(0))
    assert _PERSONS == entry.n_users
    assert BatchState.ERASED is await world.batch_state(signed.digest())
    assert [] == world.shuffler.key_files()


async def _expired(world: World, begin: Begin) -> None:
    """Run a batch with too few users: it expires and is destroyed."""
    signed = await world.publish(_PERSONS + 1, _PERSONS + 1)
    begin()
    await _everybody_answers(world)
    world.around.clock.seconds += 2000
    await world.advance()
    await world.check_end()
    assert [] == await world.analyzer.store.ledger(0)
    assert BatchState.EXPIRED is await world.batch_state(signed.digest())
    assert [] == world.shuffler.key_files()


async def _refused(world: World, begin: Begin, *, dropped: bool = False) -> None:
    """Run a batch that the analyzer refuses, as it has another of the task: it is quarantined."""
    signed = await world.publish(_PERSONS, _PERSONS)
    task = Task.from_bytes(signed.task_bytes)
    n_reports = _PERSONS * task.lengths[-1]
    forged = BatchManifest(
        task_digest=signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=_PERSONS,
        n_reports=n_reports,
    )
    await world.deliver_as_stranger(
        forged, [number.to_bytes(task.sealed_report_bytes) for number in range(n_reports)]
    )
    await world.analyzer.settle()
    begin()
    await _everybody_answers(world)
    await world.advance()
    await world.restart_crashed()
    while dropped and await world.batch_state(signed.digest()) is not BatchState.DROPPED:
        with suppress(Crash, BatchStateError):
            await world.shuffler.collection.drop(signed.digest())
        await world.restart_crashed()
        await world.advance()
        await world.restart_crashed()
    await world.finish()
    ended = BatchState.DROPPED if dropped else BatchState.QUARANTINED
    assert ended is await world.batch_state(signed.digest())
    assert (not dropped) == len(world.shuffler.key_files())


async def _unconfirmed(world: World, begin: Begin) -> None:
    """Drop a batch that is sent, while the analyzer's confirmation is lost."""
    signed = await world.publish(_PERSONS, _PERSONS)
    finish = world.shuffler.link.finish_delivery

    async def lost(digest: TaskDigest) -> NoReturn:
        await finish(digest)
        raise PeerError("the answer was lost")

    world.shuffler.link.finish_delivery = lost  # type: ignore[method-assign]
    begin()
    await _everybody_answers(world)
    while await world.batch_state(signed.digest()) is not BatchState.UNCONFIRMED:
        await world.advance()
        await world.restart_crashed()
        if await world.batch_state(signed.digest()) is BatchState.SENT:
            with suppress(Crash):
                await world.shuffler.collection.drop(signed.digest())
        await world.restart_crashed()
    await world.finish()
    assert BatchState.UNCONFIRMED is await world.batch_state(signed.digest())
    assert [] == world.shuffler.key_files()


_SCENARIOS: Final[Mapping[str, Callable[[World, Begin], Awaitable[None]]]] = MappingProxyType(
    {
        "released": _released,
        "expired": _expired,
        "refused": _refused,
        "dropped": partial(_refused, dropped=True),
        "unconfirmed": _unconfirmed,
    }
)


async def _run(path: Path, scenario: str, crash: int | None) -> list[Boundary]:
    world = World(path)
    await world.start()
    faults = world.around.faults

    def begin() -> None:
        """Start counting boundaries, and schedule the crash."""
        faults.crossed.clear()
        faults.countdown = crash

    try:
        await _SCENARIOS[scenario](world, begin)
    finally:
        await world.end()
    assert (crash is None) == (not faults.crashes), "the crash was not reached"
    return faults.crossed


async def test_the_scenarios_cover_every_transition_of_a_batch(tmp_path: Path) -> None:
    """The scenarios reach every state of a batch, and of an answer that no restore has lost."""
    crossed: set[str] = set()
    for scenario in _SCENARIOS:
        crossed |= {boundary.act for boundary in await _run(tmp_path / scenario, scenario, None)}

    reached = {act.rpartition(" ")[2] for act in crossed}
    assert {state.value for state in TRANSITIONS.values()} <= reached
    assert {state.value for state in SubmissionState} - {"pending", "lost"} <= reached


@pytest.mark.parametrize("scenario", _SCENARIOS)
@pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="a twentieth"), pytest.param(True, id="all", marks=pytest.mark.slow)],
)
async def test_a_crash_at_any_boundary_changes_nothing(
    tmp_path: Path, scenario: str, *, every: bool
) -> None:
    """
    The scenario's own assertions hold: same histogram, same states, no key left.

    The short form crashes at the first boundary of every twentieth kind. Boundaries before the
    batch closes are the same in all scenarios, so only the first scenario crashes there.
    """
    boundaries = await _run(tmp_path / "no crash", scenario, None)
    ended = next(n for n, boundary in enumerate(boundaries) if boundary.act.startswith("set "))
    alike = 0 if scenario == "released" else ended
    first: dict[Boundary, int] = {}
    for number, boundary in enumerate(boundaries):
        first.setdefault(boundary, number)
    short = [number for number in first.values() if number >= alike][::20]
    numbers = range(len(boundaries)) if every else short
    assert numbers
    for number in numbers:
        await _run(tmp_path / f"crash {number}", scenario, number)
