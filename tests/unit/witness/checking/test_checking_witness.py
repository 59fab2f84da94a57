"""A checking witness: what it refuses, what it remembers, and how a log reaches it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import psutil
import pytest

from shuffledp.analyzer import registry
from shuffledp.analyzer.storage import log_table
from shuffledp.analyzer.task_builder import complete
from shuffledp.analyzer.witness_client import RemoteWitness
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.errors import PolicyError, ProofError, SettingsError, TaskError, WireError
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import CHECKING, PLAIN, CosignedHead
from shuffledp.common.task.task import Task
from shuffledp.common.transparency.checkpoint import (
    Checkpoint,
    NoteKey,
    NoteSignature,
    SignedCheckpoint,
    log_key,
)
from shuffledp.common.transparency.growth import MAX_ADDED, Growth, joined_root
from shuffledp.common.transparency.log import EntryKind, LogEntry
from shuffledp.common.transparency.merkle import LogTree, leaf_hash
from shuffledp.common.wire.added_entries import growth_from_wire, growth_to_wire
from shuffledp.common.wire.tasks import signed_task_to_wire
from shuffledp.common.wire.transparency import cosignature_from_wire
from shuffledp.protos.shuffledp.v1 import log_pb2
from shuffledp.witness.checking import server, task_checks
from shuffledp.witness.checking.check_process import refusal
from shuffledp.witness.checking.servicer import CheckingServicer
from shuffledp.witness.checking.task_checks import Reason, TaskChecks
from shuffledp.witness.settings import CheckingWitnessSettings
from tests.benchmarks import bench_claims
from tests.support.analyzer_core import AnalyzerCore
from tests.support.changed_tasks import changed
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.tables import table
from tests.support.transparency import LOG_IDENTITY, NOW

_PUBLIC: Final = LOG_IDENTITY.public_identity()


def _task(protocol: str) -> Task:
    return (kind_task if protocol in OF_OTHER_KINDS else protocol_task)(protocol)


def _signed(task: Task, identity: SigningIdentity = LOG_IDENTITY) -> SignedTask:
    return identity.sign(task.to_bytes())


_CHEAP: Final = _task("sbin")
"""Checked in a millisecond."""
_TASKS: Final = [_signed(replace(_CHEAP, nonce=bytes([n]) * 32)) for n in range(6)]
_KEYS: Final = [
    LogEntry(EntryKind.ISSUER_KEY, SigningIdentity(bytes([n]) * 32).public_identity().raw)
    for n in range(20)
]
_FALSE: Final = _signed(replace(_CHEAP, central_epsilon=0.97 * _CHEAP.central_epsilon))


_Entry = LogEntry | SignedTask
"""A key's entry, or a task, whose entry follows from it."""


def _entries(added: Sequence[_Entry]) -> tuple[LogEntry, ...]:
    return tuple(LogEntry.of_task(e) if isinstance(e, SignedTask) else e for e in added)


def _leaves(added: Sequence[_Entry]) -> list[bytes]:
    return [leaf_hash(entry.to_bytes()) for entry in _entries(added)]


def _tasks(added: Sequence[_Entry]) -> tuple[bytes, ...]:
    return tuple(one.task_bytes for one in added if isinstance(one, SignedTask))


def _growth(
    log: Sequence[_Entry], old_size: int, shown: Sequence[_Entry] | None = None, **changes: Any
) -> Growth:
    """Return a log's head and what is shown: by default the entries after the first `old_size`."""
    tree = LogTree(_leaves(log))
    head = Checkpoint(origin=log_key(_PUBLIC).name, size=len(log), root=tree.root)
    added = log[old_size:] if shown is None else shown
    fields: dict[str, Any] = {
        "old_size": old_size,
        "subtrees": tree.full_subtrees(old_size),
        "checkpoint": head.sign(LOG_IDENTITY),
        "entries": _entries(added),
        "tasks": _tasks(added),
    }
    return Growth(**fields | changes)


class _InlineChecks(TaskChecks):
    """Checks in this process."""

    def __init__(self) -> None:
        self.signers = [_PUBLIC]
        super().__init__(self.signers, ManualClock(NOW))
        self.asked = 0

    async def _ask(self, task_bytes: bytes) -> tuple[Reason, str]:
        self.asked += 1
        return "rule", refusal(task_bytes)


@dataclass
class _Witness:
    """A checking witness on its own files, called without a network; its key is its link's."""

    path: Path

    def __post_init__(self) -> None:
        self.checks = _InlineChecks()
        state = StateDirectory.open(self.path)
        head = CosignedHead(state, _PUBLIC, "witness", ManualClock(NOW), CHECKING)
        self.servicer = CheckingServicer(head, self.checks)
        self.key = NoteKey.parse((self.path / "witness.pub").read_text(encoding="ascii"))
        self.calls = list[Growth]()

    def restarted(self) -> Self:
        """Start again from the files."""
        return type(self)(self.path)

    async def add_entries(self, growth: Growth) -> tuple[int, NoteSignature | None]:
        """Ask for a cosignature, and verify it."""
        self.calls.append(growth)
        answer = await self.servicer.AddEntries(growth_to_wire(growth), None)
        size, line = cosignature_from_wire(answer)
        if line is not None:
            checked = SignedCheckpoint(growth.checkpoint.checkpoint, (line,))
            assert (NOW, size) == (checked.signed_at(self.key), growth.checkpoint.checkpoint.size)
        return size, line

    async def check_task(self, signed: SignedTask) -> None:
        """Check a task that is not logged."""
        request = log_pb2.CheckTaskRequest(task=signed_task_to_wire(signed))
        await self.servicer.CheckTask(request, None)


@pytest.fixture
def witness(tmp_path: Path) -> _Witness:
    """A new checking witness."""
    return _Witness(tmp_path / "checking")


async def test_a_true_log_is_cosigned_as_it_grows(witness: _Witness) -> None:
    """From nothing, again at the same size, after a restart, and by entries of every kind."""
    log: list[_Entry] = [*_KEYS[:3], *_TASKS[:2], _KEYS[3], *_TASKS[2:]]
    for old_size, size in ((0, 0), (0, 3), (3, 3), (3, 4), (4, 9), (9, 10)):
        _, line = await witness.add_entries(_growth(log[:size], old_size))
        assert line is not None
        witness = witness.restarted()
    assert (10, None) == await witness.add_entries(_growth(log, 4))


@pytest.mark.parametrize(
    "protocol",
    [
        *("sh", "murs", "aue", "signed", "sbin", "hybrid", "hierarchy", "puredump"),
        *("discover", "harmony", "priv-kv"),
    ],
)
def test_a_false_central_claim_of_any_protocol_is_refused(protocol: str) -> None:
    """It is three per cent too low; the true one passes."""
    task = _task(protocol)
    false = replace(task, central_epsilon=0.97 * task.central_epsilon)

    assert "" == refusal(task.to_bytes())
    assert "do not satisfy its claim of central epsilon" in refusal(false.to_bytes())


@table(
    "protocol", ["ldp-grr", "ldp-olh", "ldp-oue", "ldp-sw", "murs", "hybrid", "duchi", "priv-kv"]
)
def test_a_false_local_claim_of_any_mechanism_is_refused(protocol: str) -> None:
    """The integer weights do not keep it."""
    task = _task(protocol)
    local = 0.97 * task.local_epsilon
    false = changed(task, local_epsilon=local, central_epsilon=min(local, task.central_epsilon))

    assert f"its claim of local epsilon {local}" in refusal(false.to_bytes())


def _heavier(task: Task) -> Task:
    spec = task.item_mechanism
    return replace(task, mechanism=replace(spec, true_weight=spec.true_weight + 1))


@pytest.mark.parametrize(
    ("false", "rule"),
    [
        (_FALSE, "do not satisfy its claim of central epsilon"),
        (_signed(_heavier(_task("sh"))), "do not satisfy its claim of local epsilon"),
        (LOG_IDENTITY.sign(_TASKS[0].task_bytes[:-1]), "is not JSON"),
        (LOG_IDENTITY.sign(_TASKS[0].task_bytes + b" "), "not in canonical form"),
    ],
)
async def test_one_false_task_refuses_the_checkpoint_forever(
    witness: _Witness, false: SignedTask, rule: str
) -> None:
    """The sentence names the task and the rule; neither a restart nor more entries help."""
    log: list[_Entry] = [_KEYS[0], _TASKS[0], false, _TASKS[1]]
    assert (await witness.add_entries(_growth(log[:2], 0)))[1] is not None
    for size in (3, 4, 4):
        with pytest.raises(PolicyError, match=f"{false.digest().hex()} is refused: .*{rule}"):
            await witness.add_entries(_growth(log[:size], 2))
        witness = witness.restarted()
    for _ in range(2):
        with pytest.raises(PolicyError, match=rule):
            await witness.check_task(false)
    assert 1 == witness.checks.asked  # a refusal is remembered
    assert (2, None) == await witness.add_entries(_growth(log, 3))


async def test_a_task_needs_the_signature_of_an_identity_of_the_analyzer(witness: _Witness) -> None:
    """In the log and before. One that the settings name as an earlier one will do."""
    old = SigningIdentity(bytes(32))
    log: list[_Entry] = [_signed(_CHEAP, old), _KEYS[0], _TASKS[0]]
    with pytest.raises(PolicyError, match=r"[0-9a-f]{64} is refused: it is not signed by a pinned"):
        await witness.add_entries(_growth(log, 0))
    with pytest.raises(PolicyError, match="not signed by a pinned"):
        await witness.check_task(_signed(_CHEAP, old))
    assert 0 == witness.checks.asked
    witness.checks.signers.append(old.public_identity())
    assert (await witness.add_entries(_growth(log, 0)))[1] is not None


_LOG: Final[list[_Entry]] = [_KEYS[0], *_TASKS, _KEYS[1]]
_BEFORE: Final = 3


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (_LOG[3:5] + _LOG[6:], "the 4 entries after the first 3 .* left out, moved or changed"),
        (_LOG[4:], "left out"),
        (_LOG[3:-1], "left out"),
        ((), "left out"),
        ([*_LOG[3:], _LOG[3]], "left out"),
        ([_LOG[4], _LOG[3], *_LOG[5:]], "moved"),
        ([_KEYS[2], *_LOG[4:]], "changed"),
        ([_FALSE, *_LOG[4:]], "changed"),
        ([_signed(_task("murs")), *_LOG[4:]], "changed"),
    ],
)
async def test_entries_that_are_not_the_logs_are_refused(
    witness: _Witness, entries: Sequence[_Entry], problem: str
) -> None:
    """Left out, repeated, swapped or replaced: no task is checked. Then the right ones pass."""
    await witness.add_entries(_growth(_LOG[:_BEFORE], 0))
    checked = witness.checks.asked
    with pytest.raises(ProofError, match=problem):
        await witness.add_entries(_growth(_LOG, _BEFORE, entries))
    assert checked == witness.checks.asked
    assert (await witness.add_entries(_growth(_LOG, _BEFORE)))[1] is not None


async def test_another_history_is_refused(witness: _Witness) -> None:
    """Or subtrees that are not the cosigned ones, a smaller size, or another log's signature."""
    await witness.add_entries(_growth(_LOG[:_BEFORE], 0))
    fork: list[_Entry] = [_KEYS[5], *_LOG[1:]]
    subtrees = LogTree(_leaves(_LOG)).full_subtrees(_BEFORE)
    for growth, problem in (
        (_growth(fork, _BEFORE), "its database is an old copy"),
        (_growth(fork[:_BEFORE], _BEFORE), "its database is an old copy"),
        (_growth(_LOG, _BEFORE, subtrees=()), "its database is an old copy"),
        (_growth(_LOG, _BEFORE, subtrees=subtrees[::-1]), "its database is an old copy"),
        (_growth(_LOG, _BEFORE, subtrees=(joined_root(subtrees),)), "its database is an old copy"),
        (_growth(fork, _BEFORE, subtrees=subtrees), "left out, moved or changed"),
        (replace(_growth(_LOG[:2], 2), old_size=3, subtrees=subtrees), "left out, moved"),
    ):
        with pytest.raises(ProofError, match=problem):
            await witness.add_entries(growth)
    head = _growth(_LOG, _BEFORE).checkpoint.checkpoint
    longer = replace(head, size=head.size + 1).sign(LOG_IDENTITY)
    with pytest.raises(ProofError, match="left out"):
        await witness.add_entries(_growth(_LOG, _BEFORE, checkpoint=longer))
    stranger = head.sign(SigningIdentity(bytes(32)))
    with pytest.raises(ProofError, match="not signed by the log"):
        await witness.add_entries(_growth(_LOG, _BEFORE, checkpoint=stranger))


@table("size", range(MAX_ADDED))
def test_subtrees_and_leaves_make_up_the_root_at_every_size(size: int) -> None:
    """Those of a tree's first leaves are those of the smaller tree."""
    leaves = _leaves(_KEYS[:MAX_ADDED])
    whole = LogTree(leaves)
    assert LogTree(leaves[:size]).full_subtrees(size) == whole.full_subtrees(size)
    for end in range(size, len(leaves) + 1):
        growth = _growth(_KEYS[:end], size)
        growth.verify(size, LogTree(leaves[:size]).root, end, LogTree(leaves[:end]).root)


def test_a_call_is_bounded() -> None:
    """By its number of entries; each task comes with its entry."""
    with pytest.raises(WireError, match=f"entries is {MAX_ADDED + 1}"):
        _growth(_KEYS[: MAX_ADDED + 1], 0)
    for tasks in ((), _tasks(_TASKS[:1]), _tasks(_TASKS[1::-1]), _tasks([*_TASKS[:2], _FALSE])):
        message = growth_to_wire(_growth([_KEYS[0], *_TASKS[:2]], 0))
        message.tasks[:] = tasks
        with pytest.raises(WireError, match="not those of its entries"):
            growth_from_wire(message)


async def test_a_true_task_is_checked_once(
    witness: _Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is logged and then not again, unless many others came in between."""
    await witness.check_task(_TASKS[0])
    await witness.add_entries(_growth(_TASKS[:3], 0))
    assert 3 == witness.checks.asked
    monkeypatch.setattr(task_checks, "_REMEMBERED", 2)
    await witness.check_task(_TASKS[3])
    await witness.check_task(_TASKS[2])
    assert 4 == witness.checks.asked
    await witness.check_task(_TASKS[0])
    assert 5 == witness.checks.asked


@pytest.mark.parametrize("files", [(PLAIN, CHECKING), (CHECKING, PLAIN)])
def test_a_key_serves_one_kind_of_witness(tmp_path: Path, files: tuple[str, str]) -> None:
    """A plain witness's key has cosigned unchecked tasks."""
    state = StateDirectory.open(tmp_path / "state")
    CosignedHead(state, _PUBLIC, "witness", ManualClock(), files[0])
    with pytest.raises(SettingsError, match=r"is missing.* remove witness\.key"):
        CosignedHead(state, _PUBLIC, "witness", ManualClock(), files[1])


# --- the process that checks


def _playing(
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    seconds: float = 30.0,
    clock: ManualClock | None = None,
) -> TaskChecks:
    """Return checks in a process that runs another program."""
    monkeypatch.setattr(task_checks, "_PROGRAM", (sys.executable, "-c", program))
    monkeypatch.setattr(task_checks, "_SECONDS", seconds)
    return TaskChecks([_PUBLIC], clock or ManualClock())


async def test_a_check_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process is ended, also if the caller gives up; meanwhile the event loop answers."""
    program = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    checks, ticks = _playing(monkeypatch, f"{program}while True: pass", 1.0), 0
    asking = asyncio.create_task(checks.check(_TASKS[0]))
    while not asking.done():
        ticks += 1
        await asyncio.sleep(0.01)
    with pytest.raises(PolicyError, match="cannot be checked within 1 seconds"):
        await asking
    assert ticks > 20
    assert not await _lives(tmp_path / "pid")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(checks.check(_TASKS[1]), 0.5)
    assert not await _lives(tmp_path / "pid")


async def _lives(file: Path) -> bool:
    """Return whether a process still runs after a while."""
    for _ in range(100):
        if not psutil.pid_exists(int(file.read_text(encoding="ascii"))):
            return False
        await asyncio.sleep(0.01)
    return True


async def test_a_slow_task_that_is_sent_again_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is refused at once for a minute, and then checked again."""
    ran, clock = tmp_path / "ran", ManualClock()
    program = f"open({str(ran)!r}, 'a').write('.'); raise SystemExit(77)"
    checks = _playing(monkeypatch, program, clock=clock)
    for seconds, times in ((0, 1), (59, 1), (60, 2), (61, 2)):
        clock.seconds = ManualClock().seconds + seconds
        with pytest.raises(PolicyError, match="cannot be checked within bounded memory"):
            await checks.check(_TASKS[0])
        assert times == ran.stat().st_size


async def test_a_check_that_fails_refuses_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator reads that the witness failed; what it printed until then does not count."""
    program = "print(end='', flush=True); raise SystemExit(3)"
    with pytest.raises(PolicyError, match="check failed with exit status 3"):
        await _playing(monkeypatch, program).check(_TASKS[0])
    assert ["failure"] == [vars(record)["fields"]["reason"] for record in caplog.records]


@pytest.mark.slow
async def test_tasks_are_checked_in_a_process() -> None:
    """With the real program: one passes, and one does not."""
    checks = TaskChecks([_PUBLIC], ManualClock())
    await checks.check(_TASKS[0])
    with pytest.raises(PolicyError, match="do not satisfy its claim of central epsilon"):
        await checks.check(_FALSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["signed, wide clusters", "hybrid, wide noise"])
async def test_the_dearest_tasks_are_checked_in_half_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Libraries, which need most of it, may grow."""
    half = "(check._MEMORY // 2, check._MEMORY // 2)"
    program = (
        "import resource, sys, shuffledp.witness.checking.check_process as check\n"
        f"resource.setrlimit(resource.RLIMIT_AS, {half})\n"
        "check.refusal(sys.stdin.buffer.read())\n"
    )
    task = replace(bench_claims.DEAR[name](), n_min=10**6, target_size=10**9)
    await _playing(monkeypatch, program).check(_signed(task))


# --- the analyzer's side


async def _start(core: AnalyzerCore, *checking: Any) -> asyncio.Task[None]:
    """Restart an analyzer with checking witnesses; return the task of its calls to them."""
    core.checking = checking
    await core.restart()
    await core.log.resume([])
    return asyncio.create_task(core.log.run())


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[AnalyzerCore]:
    """An analyzer that signs as the tests' log."""
    StateDirectory.open(tmp_path / "analyzer").secret("identity.key", LOG_IDENTITY.private_bytes)
    started = AnalyzerCore(tmp_path / "analyzer")
    await started.start()
    yield started
    await started.stop()


@pytest.mark.parametrize("large", [False, True])
async def test_a_new_witness_catches_up_with_a_long_log(
    core: AnalyzerCore, witness: _Witness, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    """In calls of bounded size, each under a checkpoint of its own; after a restart it goes on."""
    size = 1000
    if large:  # one task fills a call
        monkeypatch.setattr(log_table, "MAX_ADDED_BYTES", 10)
        size = 25
    made = (SigningIdentity(n.to_bytes(32)).public_identity() for n in range(size - 10))
    keys = [LogEntry(EntryKind.WITNESS_KEY, one.raw) for one in made]
    await core.store.run(log_table.append, keys[: size // 2])
    tasks = [await core.publish() for _ in range(10)]
    await core.store.run(log_table.append, keys[size // 2 :])
    running = await _start(core, witness)
    assert {witness.key.name: ""} == await core.log.publish()

    assert size == sum(len(one.entries) for one in witness.calls)
    assert tasks == [task for one in witness.calls for task in one.signed_tasks()]
    assert all(0 < len(one.entries) <= MAX_ADDED for one in witness.calls)
    if large:
        assert all(len(one.tasks) <= 1 for one in witness.calls)
    [served] = core.log.copy.checkpoints
    assert NOW == served.signed_at(witness.key)
    running.cancel()
    last = await core.publish()
    again = witness.restarted()
    running = await _start(core, again)
    assert {witness.key.name: ""} == await core.log.publish()
    assert 2 == len(again.calls)  # the first learned its size
    assert [last] == again.calls[-1].signed_tasks()
    running.cancel()


async def test_after_a_renewed_identity_the_whole_log_is_cosigned(
    tmp_path: Path, witness: _Witness
) -> None:
    """Under its new key, with the tasks that the earlier identity signed."""
    witness.checks.signers.append(SigningIdentity(bytes(32)).public_identity())
    state = StateDirectory.open(tmp_path / "renewed")
    state.secret("identity.key", SigningIdentity(bytes(32)).private_bytes)
    core = AnalyzerCore(state.path)
    await core.start()
    tasks = [await core.publish()]
    state.destroy("identity.key")
    (state.path / "identity.pub").unlink()
    state.secret("identity.key", LOG_IDENTITY.private_bytes)
    running = await _start(core, witness)
    tasks.append(await core.publish())
    assert {witness.key.name: ""} == await core.log.publish()
    assert tasks == [task for one in witness.calls for task in one.signed_tasks()]
    running.cancel()
    await core.stop()


def _lying(*arguments: Any, **named: Any) -> Task:
    """Complete a draft with a claim that is too low."""
    task = complete(*arguments, **named)
    return replace(task, central_epsilon=0.9 * task.central_epsilon)


async def test_a_task_that_a_checking_witness_refuses_is_not_published(
    core: AnalyzerCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over gRPC. The sentence names witness, task and rule; afterwards true tasks are cosigned."""
    service = await server.start(
        CheckingWitnessSettings(
            state_directory=tmp_path / "service",
            plaintext=True,
            analyzer_identity=_PUBLIC.raw.hex(),
        )
    )
    key = NoteKey.parse((tmp_path / "service" / "witness.pub").read_text(encoding="ascii"))
    running = await _start(core, RemoteWitness(service.address, key, None))
    with monkeypatch.context() as patched:
        patched.setattr(registry, "complete", _lying)
        with pytest.raises(TaskError, match=rf"{key.name} refuses .*[0-9a-f]{{64}} is ref.* claim"):
            await core.publish()
    assert [] == await core.store.run(log_table.leaves_after, 0)
    await core.publish()
    assert {key.name: ""} == await core.log.publish()
    assert [] == list((tmp_path / "service").glob(PLAIN))
    running.cancel()
    await service.stop()


async def test_checking_witnesses_check_a_task_at_the_same_time(
    core: AnalyzerCore, witness: _Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that hang cost their one timeout, whatever their number."""
    met = asyncio.Barrier(2)

    async def meet(_: SignedTask) -> None:
        await asyncio.wait_for(met.wait(), 1)

    monkeypatch.setattr(witness, "check_task", meet)
    running = await _start(core, witness, witness)
    await core.publish()
    running.cancel()


async def test_a_task_is_published_while_a_checking_witness_is_away(
    core: AnalyzerCore, witness: _Witness
) -> None:
    """As with other witnesses, the operator reads that it has not cosigned; its claims hold."""
    nobody = RemoteWitness("127.0.0.1:1", witness.key, None)
    running = await _start(core, nobody)
    signed = await core.publish()
    [problem] = (await core.log.publish()).values()
    assert "the checking witness does not answer" in problem
    running.cancel()
    running = await _start(core, witness)
    assert {witness.key.name: ""} == await core.log.publish()
    assert [signed] == witness.calls[-1].signed_tasks()
    running.cancel()
