"""
A crash at every boundary leads, after a restart, to the same end as no crash.

A boundary is either side of a transaction, of making or destroying a key file, or of a call to
another party, of any of the three. They are found by running without a crash, and the table of the
batch's states says which must be among them.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from common.messages.batch import BatchId, BatchManifest, BatchState
from common.task.task import Task
from shuffler.active_batches import TRANSITIONS
from tests.support.faults import Boundary
from tests.support.world import World
from user_agent.budget import SubmissionState

_PERSONS: Final = 3


async def _everybody_answers(world: World) -> None:
    """Each person tries until their answer is saved; what is saved is sent until it arrives."""
    [signed] = world.signed
    for person in range(_PERSONS):
        while len(await world.saved(signed.digest())) <= person:
            await world.contribute(person, signed)
            await world.raise_the_dead()
    while any(each.state is SubmissionState.PENDING for each in await world.saved(signed.digest())):
        await world.resend()
        await world.raise_the_dead()


async def _released(world: World) -> None:
    """As many as wanted answer; the batch is released, and one who comes late is refused."""
    signed = await world.publish(_PERSONS, _PERSONS)
    _count_from_here(world)
    await _everybody_answers(world)
    while await world.batch_state(signed.digest()) is BatchState.COLLECTING:
        await world.advance()
        await world.raise_the_dead()
    await world.contribute(_PERSONS, signed)
    await world.check_end()
    [entry] = await world.analyzer.store.ledger(0)
    assert _PERSONS == entry.n_users
    assert BatchState.ERASED is await world.batch_state(signed.digest())
    assert [] == world.shuffler.key_files()


async def _expired(world: World) -> None:
    """Too few answer; the batch expires and is destroyed."""
    signed = await world.publish(_PERSONS + 1, _PERSONS + 1)
    _count_from_here(world)
    await _everybody_answers(world)
    world.around.clock.seconds += 2000
    await world.advance()
    await world.check_end()
    assert [] == await world.analyzer.store.ledger(0)
    assert BatchState.EXPIRED is await world.batch_state(signed.digest())
    assert [] == world.shuffler.key_files()


async def _refused(world: World) -> None:
    """The analyzer holds another batch of this task; the shuffler's is kept, not released."""
    signed = await world.publish(_PERSONS, _PERSONS)
    task = Task.from_bytes(signed.task_bytes)
    n_reports = _PERSONS * task.reports_per_user
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
    _count_from_here(world)
    await _everybody_answers(world)
    await world.advance()
    await world.calm_down()
    assert BatchState.QUARANTINED is await world.batch_state(signed.digest())
    assert 1 == len(world.shuffler.key_files())


_STORIES: Final[Mapping[str, Callable[[World], Awaitable[None]]]] = MappingProxyType(
    {"released": _released, "expired": _expired, "refused": _refused}
)

_FIRST: Final = next(iter(_STORIES))


def _count_from_here(world: World) -> None:
    """Let the crash that was asked for count from here."""
    world.around.faults.crossed.clear()
    world.around.faults.countdown = world.around.faults.wanted


async def _tell(path: Path, story: str, crash: int | None) -> list[Boundary]:
    world = World(path)
    await world.start()
    world.around.faults.wanted = crash
    try:
        await _STORIES[story](world)
    finally:
        await world.end()
    assert (crash is None) == (not world.around.faults.crashes), "the crash was not reached"
    return world.around.faults.crossed


async def test_the_stories_cross_every_transition_of_a_batch(tmp_path: Path) -> None:
    """So that no transition of the table is left out; closing counts for what follows it too."""
    crossed: set[str] = set()
    for story in _STORIES:
        crossed |= {boundary.act for boundary in await _tell(tmp_path / story, story, None)}

    reached = {act.rpartition(" ")[2] for act in crossed}
    assert {state.value for state in TRANSITIONS.values()} <= reached
    assert {state.value for state in SubmissionState} - {"pending"} <= reached


@pytest.mark.parametrize("story", _STORIES)
@pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="each kind"), pytest.param(True, id="all", marks=pytest.mark.slow)],
)
async def test_a_crash_at_any_boundary_changes_nothing(
    tmp_path: Path, story: str, *, every: bool
) -> None:
    """
    Same histogram, same states, no key left behind: the story's own assertions hold.

    A boundary is crossed many times; the short form crashes at the first of each kind, and leaves
    to the first story what all of them begin with: until the batch collects no more.
    """
    boundaries = await _tell(tmp_path / "calm", story, None)
    ended = next(n for n, boundary in enumerate(boundaries) if boundary.act.startswith("set "))
    alike = 0 if story == _FIRST else ended
    first: dict[Boundary, int] = {}
    for number, boundary in enumerate(boundaries):
        first.setdefault(boundary, number)
    short = [number for number in first.values() if number >= alike]
    numbers = range(len(boundaries)) if every else short
    assert numbers
    for number in numbers:
        await _tell(tmp_path / f"crash {number}", story, number)
