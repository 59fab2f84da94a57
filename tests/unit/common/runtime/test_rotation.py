import asyncio
import contextlib
from pathlib import Path

import pytest

from common.crypto.hpke import KeyId
from common.crypto.key_ring import DAY
from common.crypto.suites import DEFAULT_SUITE
from common.runtime.key_store import KeyStore, Rotation
from common.runtime.state_directory import StateDirectory
from deploy.audit.harness.clock import ManualClock
from tests.support.keys import SCHEDULE


class _Party:
    """Counts what it is asked, and forgets."""

    def __init__(self, path: Path) -> None:
        state = StateDirectory.open(path / "state")
        self.keys = KeyStore(state, SCHEDULE, suites=(DEFAULT_SUITE,))
        self.clock = ManualClock(0.0)
        self.needed_keys: set[KeyId] = set()
        self.asked = self.forgotten = self.published = 0
        self.broken = False
        self.rotation = Rotation(
            keys=self.keys,
            clock=self.clock,
            needed=self.needed,
            forget=self.forget_keys,
            publish=self.publish,
        )

    async def needed(self) -> set[KeyId]:
        """Keys of unfinished tasks."""
        self.asked += 1
        if self.broken:
            raise OSError
        return self.needed_keys

    def forget_keys(self) -> None:
        """Count."""
        self.forgotten += 1

    def publish(self) -> None:
        """Count."""
        self.published += 1

    async def at(self, days: float) -> None:
        """Look at the clock on a day."""
        self.clock.seconds = days * DAY
        await self.rotation.do_what_is_due()


async def test_keys_are_rotated_while_the_party_runs(tmp_path: Path) -> None:
    """By the clock; what is published follows, and who holds a destroyed key forgets it."""
    party = _Party(tmp_path)
    await party.at(0)
    first = party.keys.public_key()
    for day in (88, 90):
        await party.at(day)
    assert first.raw != party.keys.public_key().raw
    assert (0, 3) == (party.forgotten, party.published)

    await party.at(120)
    assert (1, 4) == (party.forgotten, party.published)


async def test_tasks_are_looked_through_only_when_a_key_could_go(tmp_path: Path) -> None:
    """And what they need is kept."""
    party = _Party(tmp_path)
    await party.at(0)
    party.needed_keys = {party.keys.public_key().key_id}
    for day in (88, 90, 119):
        await party.at(day)
    assert 0 == party.asked

    await party.at(120)
    assert (1, 0) == (party.asked, party.forgotten)


async def test_what_goes_wrong_once_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk does not end rotation for good; nothing is destroyed unasked."""
    party = _Party(tmp_path)
    for day in (0, 88, 90):
        await party.at(day)
    party.broken = True
    party.clock.seconds = 120 * DAY
    running = asyncio.create_task(party.rotation.run(tick=0.001))
    async with asyncio.timeout(10):
        while party.asked < 3:
            await asyncio.sleep(0.001)
        assert 0 == party.forgotten
        party.broken = False
        while party.forgotten == 0:
            await asyncio.sleep(0.001)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

    assert any(record.getMessage() == "keys not rotated yet" for record in caplog.records)
