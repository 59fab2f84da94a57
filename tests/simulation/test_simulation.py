"""Random lists of operations, like Janus's simulation tests."""

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.messages.batch import BatchId, BatchState
from tests.support.faults import Crash, Loss
from tests.support.world import PERSONS, World

Act = Literal[
    "publish", "contribute", "resend", "malformed", "stranger", "advance", "wait", "restart",
    "replay batch", "rotate", "ask",
]  # fmt: skip

_REFUSED: Final = (ShuffleDpError, Crash)
_MAY_BE_REFUSED: Final = {"publish", "malformed", "replay batch"}
_SECONDS: Final = 20.0
"""Time limit of a list of operations, to detect a hang."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, with the faults during it."""

    act: Act
    variant: int = 0
    """Selects the task, the party, the kind of malformed submission, or the seconds."""
    index: int = 0
    lost: Loss | None = None
    """Loss of the next call to the shuffler and of the next to the analyzer."""
    crash: int | None = None
    """Number of boundaries until a crash; None for no crash."""

    async def run(self, world: World) -> None:
        """Run the operation."""
        signed = world.signed[min(self.variant // 6, len(world.signed) - 1)]
        match self.act:
            case "publish":
                await world.publish(1 + self.variant % 4, 1 + self.index % 6)
            case "contribute":  # one in four presses the button twice
                times = range(2 if self.variant % 4 == 0 else 1)
                await asyncio.gather(
                    *(world.contribute(self.index % PERSONS, signed) for _ in times)
                )
            case "wait":
                world.around.clock.seconds += 100 * (self.variant % 8)
            case "restart":
                await world.restart(world.parties[self.variant % 3])
            case "malformed":
                await self._submit_malformed(world, signed)
            case "stranger":
                await self._submit_again(world, signed)
            case "replay batch":
                await self._replay_batch(world)
            case _:
                await getattr(world, self.act)()

    async def _submit_malformed(self, world: World, signed: SignedTask) -> None:
        """Submit invalid bytes as a stranger: random ones, or a submission with one bit changed."""
        saved = await world.saved(signed.digest())
        envelopes = [each.envelope or each.envelope_hash for each in saved]
        good = envelopes[self.index % len(envelopes)] if envelopes else bytes(100)
        place = self.index % len(good)
        flipped = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        bad = (b"", good[:-1], good + b"\0", bytes(len(good)), flipped)[self.variant % 5]
        await world.submit_as_stranger(signed.digest(), bad)
        raise AssertionError("a malformed submission was accepted")

    async def _submit_again(self, world: World, signed: SignedTask) -> None:
        """Replay a device's submissions as a stranger, to their task and to others."""
        for other in world.signed:
            for saved in (await world.saved(signed.digest()))[:2]:
                if other.digest() == saved.task_digest and saved.state.value == "pending":
                    continue  # a stranger may not have seen it
                envelope = saved.envelope or saved.envelope_hash
                try:
                    await world.submit_as_stranger(other.digest(), envelope)
                except ShuffleDpError:
                    continue

    async def _replay_batch(self, world: World) -> None:
        """
        Deliver a whole batch again: unchanged, under another id, or with another size.

        The last two only after the shuffler knows of the delivery: before that, only the shuffler
        can deliver, and it knows one id and one size.
        """
        if not world.shuffler.delivered:
            return
        begun = list(world.shuffler.delivered)
        manifest = begun[self.index % len(begun)]
        arrived = await world.batch_state(manifest.task_digest) is BatchState.ERASED
        others = (
            manifest,
            replace(manifest, batch_id=BatchId(bytes(16))),
            replace(manifest, n_users=manifest.n_users + 1),
        )
        other = others[self.variant % 3] if arrived else manifest
        await world.deliver_as_stranger(other, world.sent(manifest))
        assert other == manifest, "a second batch was accepted for a task"
        await world.analyzer.settle()


async def _run(path: Path, operations: list[Operation]) -> None:
    """Run operations one after the other on a new system, with checks after each."""
    world = World(path)
    async with asyncio.timeout(_SECONDS):
        await world.start()
        try:
            await world.publish(2, 3)
            for operation in operations:
                if operation.lost is not None:
                    world.around.network.losses = dict.fromkeys(
                        ("shuffler", "analyzer"), operation.lost
                    )
                if operation.crash is not None:
                    world.around.faults.countdown = operation.crash
                with suppress(*(_REFUSED if operation.act in _MAY_BE_REFUSED else ())):
                    await operation.run(world)
                await world.check()
            await world.check_end()
        finally:
            await world.end()


def _run_anew(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(_run(Path(path), operations))


_LOSSES = st.sampled_from([None, None, None, "request", "response"])
_CRASHES = st.one_of(st.none(), st.none(), st.integers(0, 25))
_NUMBERS = st.integers(0, 15)
_OPERATIONS = st.lists(
    st.builds(
        Operation,
        act=st.sampled_from(
            ["contribute"] * 6
            + ["advance"] * 3
            + ["publish", "resend", "malformed", "stranger", "wait", "restart", "replay batch"]
            + ["rotate", "ask"]
        ),
        variant=_NUMBERS,
        index=_NUMBERS,
        lost=_LOSSES,
        crash=_CRASHES,
    ),
    max_size=30,
)
_PROFILE: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


_REPUBLISHED: Final = [
    Operation("publish"),
    Operation("contribute", variant=6, crash=5),
    Operation("publish"),
    Operation("publish"),
]
"""A restarted analyzer must not draw the nonce of an earlier task again."""


@given(_OPERATIONS)
@example(_REPUBLISHED)
@settings(_PROFILE, max_examples=5, derandomize=True)
def test_nothing_is_lost_and_nothing_counted_twice(operations: list[Operation]) -> None:
    """World.check and World.check_end hold after any operations in any order."""
    _run_anew(operations)


@pytest.mark.slow
@given(_OPERATIONS)
@settings(_PROFILE, max_examples=1500)
def test_nothing_is_lost_and_nothing_counted_twice_at_length(operations: list[Operation]) -> None:
    """The lists differ in each run."""
    _run_anew(operations)


@pytest.mark.parametrize("way", range(3))
def test_a_replayed_batch_changes_nothing(way: int) -> None:
    """An unchanged batch is acknowledged again; another id or size is refused."""
    answers = [Operation("contribute", index=person) for person in range(3)]
    _run_anew([*answers, Operation("advance"), Operation("replay batch", variant=way)])
