"""The device's view of the log: what it accepts, what it keeps, and what costs nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import ProofError
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import NoteSignature, SignedCheckpoint
from shuffledp.common.transparency.log import LogEntry, LogProof, find_fork
from shuffledp.common.transparency.witness_policy import ForkError, WitnessQuorumError
from shuffledp.user_agent import task_log
from shuffledp.user_agent.device_store import DeviceStore
from shuffledp.user_agent.task_log import DeviceLog
from tests.support.devices import agent_of
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published
from tests.support.transparency import KEYS, LOG, NOW, ORIGIN, POLICY, Log, task_entry, with_lines

_CASES = [published(), published(domain_size=50)]
_TASKS = [case.signed for case in _CASES]
_LOG = Log([task_entry(0), *map(LogEntry.of_task, _TASKS), task_entry(3)])
_OTHER = Log([task_entry(9), *map(LogEntry.of_task, _TASKS), task_entry(3)])


class _Relay:
    """A shuffler that relays one log's place of a task, under a head of some size."""

    def __init__(self, log: Log = _LOG, size: int = 3) -> None:
        self.log = log
        self.size = size
        self.signed: SignedCheckpoint | None = None
        self.asked: list[int] = []
        self.before: Callable[[], Awaitable[object]] | None = None
        """Runs once, before the next answer."""

    async def fetch_logged_task(
        self, digest: TaskDigest, log_size: int
    ) -> tuple[SignedTask, LogProof]:
        """Return a task and its proof."""
        self.asked.append(log_size)
        before, self.before = self.before, None
        if before is not None:
            await before()
        [index] = [n for n, one in enumerate(_TASKS, 1) if one.digest() == digest]
        proof = LogProof(
            index=index,
            path=self.log.proof(index, self.size).path,
            checkpoint=self.signed or self.log.cosigned(self.size),
            consistency=self.log.consistency(log_size, self.size) if log_size <= self.size else (),
        )
        return _TASKS[index - 1], proof


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    """An empty device."""
    opened = DeviceStore(tmp_path / "budget.sqlite")
    yield opened
    opened.close()


def _device(store: DeviceStore, relay: _Relay) -> DeviceLog:
    return DeviceLog(relay.fetch_logged_task, store, POLICY, ManualClock(float(NOW)))


async def test_the_last_checkpoint_is_kept_with_each_tasks_proof(store: DeviceStore) -> None:
    """The next request names its size; a later proof of a task replaces the earlier one."""
    relay = _Relay()
    for task, size in ((0, 3), (1, 3), (0, 4)):
        relay.size = size
        assert _TASKS[task] == await _device(store, relay).fetch(_TASKS[task].digest())
    last = await store.run(task_log.last_checkpoint, ORIGIN)
    evidence = await store.run(task_log.all_evidence)

    assert [0, 3, 3] == relay.asked
    assert last == _LOG.cosigned(4)
    assert [(2, 3), (1, 4)] == [(one.index, one.checkpoint.checkpoint.size) for one in evidence]
    for one in evidence:
        one.verify()


async def test_a_refused_task_costs_nothing(tmp_path: Path) -> None:
    """Too few cosignatures are for another time; neither a cost nor a checkpoint is stored."""
    agent = agent_of(tmp_path, _CASES[0], MemoryShuffler(_TASKS[0]))
    relay = _Relay()
    agent.log = _device(agent.store, relay)
    relay.signed = _LOG.head(3)
    with pytest.raises(WitnessQuorumError, match="0 of 3 pinned witnesses") as caught:
        await agent.contribute(_TASKS[0].digest(), 0, "")
    assert "UNAVAILABLE" == caught.value.status
    assert ([], None) == (
        await agent.store.pending(),
        await agent.store.run(task_log.last_checkpoint, ORIGIN),
    )

    relay.signed = None
    assert (await agent.contribute(_TASKS[0].digest(), 0, "")).sent
    agent.store.close()


async def test_a_fork_is_refused_and_kept(store: DeviceStore) -> None:
    """Of one size, it convicts the log; of another, only with further evidence. At most 64."""
    await _device(store, _Relay(size=3)).fetch(_TASKS[0].digest())
    fork = _Relay(_OTHER, size=4)
    fork.signed = _OTHER.cosigned(4)
    for size, convicts in ((4, False), (3, True)):
        fork.size, fork.signed = size, _OTHER.cosigned(size)
        for _ in range(2):
            with pytest.raises(ForkError):
                await _device(store, fork).fetch(_TASKS[1].digest())
        evidence = await store.run(task_log.all_evidence)
        assert convicts == (find_fork(evidence, LOG) is not None)
    assert [False, True, True] == [one.refused for one in evidence]
    for seconds in range(100):
        fork.signed = _OTHER.cosigned(3, seconds=NOW - seconds)
        with pytest.raises(ForkError):
            await _device(store, fork).fetch(_TASKS[1].digest())

    assert 1 + 64 == len(await store.run(task_log.all_evidence))
    assert _LOG.cosigned(3) == await store.run(task_log.last_checkpoint, ORIGIN)


@pytest.mark.parametrize("forked", [False, True])
async def test_only_lines_of_pinned_keys_are_kept(store: DeviceStore, *, forked: bool) -> None:
    """No other line, repeat or invalid signature, which could mark a device, is ever exported."""
    log = _OTHER if forked else _LOG
    if forked:
        await _device(store, _Relay(size=3)).fetch(_TASKS[0].digest())
    relay = _Relay(log, size=4)
    wanted = log.cosigned(4)
    marks = (
        NoteSignature("stranger", b"mark", b"a device's mark"),
        NoteSignature(ORIGIN, b"mark", b"of another key"),
        replace(wanted.signatures[1], signature=b"a second line"),
    )
    relay.signed = with_lines(wanted, *marks)
    try:
        await _device(store, relay).fetch(_TASKS[1].digest())
    except ForkError:
        assert forked
    [evidence] = [
        one
        for one in await store.run(task_log.all_evidence)
        if one.checkpoint.checkpoint.size == wanted.checkpoint.size
    ]

    assert wanted == evidence.checkpoint


async def test_an_invalid_line_of_a_pinned_key_is_not_kept_with_a_fork(store: DeviceStore) -> None:
    """It could hold any bytes."""
    await _device(store, _Relay(size=3)).fetch(_TASKS[0].digest())
    relay = _Relay(_OTHER, size=4)
    head = _OTHER.head(4)
    relay.signed = with_lines(head, NoteSignature(KEYS[0].name, KEYS[0].key_id(), bytes(72)))
    with pytest.raises(ForkError):
        await _device(store, relay).fetch(_TASKS[1].digest())

    assert head == (await store.run(task_log.all_evidence))[-1].checkpoint


async def test_a_task_elsewhere_and_a_rolled_back_log_are_refused(store: DeviceStore) -> None:
    """A task that the log lacks, or another one than asked for; nothing of it is stored."""
    without = _Relay(Log([task_entry(number) for number in range(4)]))
    with pytest.raises(ProofError, match="index 1 does not lead to the root"):
        await _device(store, without).fetch(_TASKS[0].digest())
    relay = _Relay(size=4)
    await _device(store, relay).fetch(_TASKS[0].digest())
    relay.size = 3
    with pytest.raises(ProofError, match="of size 3 follows one of size 4"):
        await _device(store, relay).fetch(_TASKS[0].digest())

    class _Swapped(_Relay):
        async def fetch_logged_task(
            self, digest: TaskDigest, log_size: int
        ) -> tuple[SignedTask, LogProof]:
            """Return the other task, with its valid proof."""
            other = next(one for one in _TASKS if one.digest() != digest)
            return await super().fetch_logged_task(other.digest(), log_size)

    with pytest.raises(ProofError, match="another task"):
        await _device(store, _Swapped(size=4)).fetch(_TASKS[0].digest())
    assert 1 == len(await store.run(task_log.all_evidence))


async def test_concurrent_calls_advance_one_view(store: DeviceStore) -> None:
    """A call whose last checkpoint was replaced meanwhile asks again, from the new one."""
    slow, fast = _Relay(size=3), _Relay(size=4)
    slow.before = lambda: _device(store, fast).fetch(_TASKS[0].digest())
    with pytest.raises(ProofError, match="of size 3 follows one of size 4"):
        await _device(store, slow).fetch(_TASKS[1].digest())
    slow.size = 4
    await asyncio.gather(*(_device(store, slow).fetch(one.digest()) for one in _TASKS * 5))

    assert [0, 4] == slow.asked[:2]
    assert 2 == len(await store.run(task_log.all_evidence))


async def test_a_device_that_pins_another_log_starts_with_no_checkpoint(store: DeviceStore) -> None:
    """As after the analyzer's identity was renewed."""
    await _device(store, _Relay()).fetch(_TASKS[0].digest())
    relay = _Relay()
    other = replace(POLICY, log=replace(LOG, name="other"))
    with pytest.raises(ProofError, match="not signed by the log other"):
        await DeviceLog(relay.fetch_logged_task, store, other, ManualClock(NOW)).fetch(
            _TASKS[0].digest()
        )

    assert [0] == relay.asked
