"""The shuffler's copy of the log, and the proofs that it gives to devices."""

import asyncio
from collections.abc import Sequence

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import PeerError, ProofError
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.log import LogEntry
from shuffledp.common.transparency.merkle import LogTree
from shuffledp.common.wire.transparency import MAX_LEAVES, log_from_wire
from shuffledp.protos.shuffledp.v1 import log_pb2
from shuffledp.shuffler.log_relay import LogRelay
from shuffledp.shuffler.servicer import CoordinatorServicer
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published
from tests.support.transparency import NOW, POLICY, Log, task_entry

_TASK = published().signed
_ENTRIES = [task_entry(0), LogEntry.of_task(_TASK), task_entry(2), task_entry(3)]
_LOG = Log(_ENTRIES)


class _Source:
    """An analyzer that serves a log's heads; it may be away."""

    def __init__(self, log: Log, *heads: SignedCheckpoint) -> None:
        self.log = log
        self.heads = heads or (log.cosigned(),)
        self.away = False
        self.calls = 0

    async def get_log(self, after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        """Return a page."""
        self.calls += 1
        await asyncio.sleep(0)
        if self.away:
            raise PeerError("away")
        return self.log.leaves[after : after + MAX_LEAVES], self.heads


async def test_devices_of_every_size_get_proofs_while_the_analyzer_is_away() -> None:
    """The analyzer is asked once for concurrent devices, and again only after a pause."""
    source, clock = _Source(_LOG), ManualClock()
    relay = LogRelay(source.get_log, clock)
    await asyncio.gather(*(relay.prove(_TASK, 0) for _ in range(10)))
    assert 1 == source.calls
    clock.seconds += 60
    source.away = True
    for size in range(5):
        shown = await relay.prove(_TASK, size)
        last = _LOG.cosigned(size) if size else None
        POLICY.check(shown.checkpoint, NOW, last, shown.consistency)
        assert (1, _LOG.proof(1).path) == (shown.index, shown.path)
    assert 2 == source.calls

    with pytest.raises(PeerError, match="away"):
        await relay.prove(published(domain_size=7).signed, 0)
    source.away = False
    with pytest.raises(ProofError, match="not in the analyzer's log"):
        await relay.prove(published(domain_size=7).signed, 0)


async def test_the_best_cosigned_checkpoint_is_served() -> None:
    """The smallest that has the task and is not older than the device's; newer ones have fewer."""
    heads = _LOG.cosigned(2), _LOG.head(3), _LOG.head(4)
    relay = LogRelay(_Source(_LOG, *reversed(heads)).get_log, ManualClock())
    for log_size, size in ((0, 2), (2, 2), (3, 3), (4, 4), (9, 4)):
        shown = await relay.prove(_TASK, log_size)
        assert heads[size - 2] == shown.checkpoint
        _LOG.proof(1, size)


async def test_a_log_that_changed_replaces_the_copy(caplog: pytest.LogCaptureFixture) -> None:
    """The relay serves a rolled back or forked log, which devices refuse, and logs an error."""
    source = _Source(_LOG)
    relay = LogRelay(source.get_log, ManualClock())
    await relay.prove(_TASK, 0)
    for log in (Log([task_entry(8), *_ENTRIES[1:]]), Log(_ENTRIES[:2])):
        source.log, source.heads = log, (log.cosigned(),)
        await relay.refresh()
        assert log.cosigned() == (await relay.prove(_TASK, 0)).checkpoint
    [event, *_] = caplog.records
    assert ("ERROR", "log of tasks may be forked") == (event.levelname, event.getMessage())
    with pytest.raises(ProofError, match="its database is an old copy"):
        await relay.prove(published(domain_size=7).signed, 0)

    source.heads = (_LOG.cosigned(3),)
    with pytest.raises(PeerError, match="not valid"):
        await relay.refresh()


async def test_a_log_of_several_pages_is_copied() -> None:
    """A head is checked against all leaves."""
    log = Log([n.to_bytes(4) for n in range(MAX_LEAVES + 5)])
    log.entries = [*log.entries[:-1], _ENTRIES[1]]
    log = Log(log.entries)
    relay = LogRelay(_Source(log, log.head()).get_log, ManualClock())
    shown = await relay.prove(_TASK, MAX_LEAVES)

    assert (MAX_LEAVES + 4, MAX_LEAVES + 5) == (shown.index, relay.copy.size)
    assert LogTree(log.leaves).prove_consistency(MAX_LEAVES) == shown.consistency


async def test_front_ends_copy_the_coordinators_copy(shuffler: Shuffler) -> None:
    """Also while the analyzer is away."""
    source = _Source(_LOG)
    shuffler.log = LogRelay(source.get_log, ManualClock())
    servicer = CoordinatorServicer(shuffler)

    async def get_log(after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        return log_from_wire(await servicer.RelayLog(log_pb2.GetLogRequest(after=after), None))

    for away in (False, True):
        source.away = away
        shown = await LogRelay(get_log, ManualClock()).prove(_TASK, 0)
        assert _LOG.cosigned() == shown.checkpoint
