import asyncio
import dataclasses
import logging
import sqlite3
import struct
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import grpc
import numpy as np
import pytest

from shuffledp.common import errors
from shuffledp.common.crypto.signing import sign_receipt
from shuffledp.common.mechanisms.registry import rappor_of
from shuffledp.common.task.draft import TextDraft
from shuffledp.common.task_digest import TaskDigest
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from shuffledp.user_agent.clients import RemoteShuffler
from shuffledp.user_agent.core import Agent
from shuffledp.user_agent.device_store import DeviceStore, SubmissionState
from tests.support.chains import RELAY, chain
from tests.support.devices import agent_of
from tests.support.kind_tasks import kind_draft_fields
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published

_CASE = published()
_DIGEST = _CASE.signed.digest()
_CHAIN = published(**chain())


@pytest.fixture
def shuffler() -> MemoryShuffler:
    """Return a shuffler that serves the task and accepts every envelope."""
    return MemoryShuffler(_CASE.signed)


@pytest.fixture
def agent(tmp_path: Path, shuffler: MemoryShuffler) -> Iterator[Agent]:
    """Yield one person's agent."""
    made = agent_of(tmp_path, _CASE, shuffler)
    yield made
    made.store.close()


async def test_the_answer_is_saved_before_it_is_sent(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """The spend and the sealed bytes are on the disk when the shuffler first sees them."""
    found: list[SubmissionState] = []

    async def look(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        saved = await agent.store.find("", _DIGEST)
        assert digest == _DIGEST
        assert saved is not None
        assert envelope == saved.envelope
        found.append(saved.state)
        return sign_receipt(shuffler.identity, _DIGEST, envelope)

    shuffler.submit = look  # type: ignore[method-assign]
    outcome = await agent.contribute(_DIGEST, 3, "")

    assert [SubmissionState.PENDING] == found
    assert _CASE.task.local_epsilon == outcome.local_epsilon


async def test_calls_at_the_same_time_send_one_answer(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """Only the first saved answer counts; each call learns whether it sent that answer."""
    shuffler.reachable = False
    with pytest.raises(errors.PeerError):
        await agent.contribute(_DIGEST, 3, "")
    shuffler.reachable = True
    late, again = [await agent.contribute(_DIGEST, 4, "") for _ in range(2)]
    assert [(True, True), (True, False)] == [(each.repeated, each.sent) for each in (late, again)]

    agent.several_persons = True
    shuffler.received.clear()
    calls = await asyncio.gather(*(agent.contribute(_DIGEST, v, "Ada") for v in range(5)))

    assert len(set(shuffler.received)) == 1
    assert [False, True, True, True, True] == sorted(each.repeated for each in calls)
    assert [False, False, False, False, True] == sorted(each.sent for each in calls)


async def test_a_refusal_is_final_and_the_spend_stands(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """The refusal is passed on, and the answer is not resent."""
    shuffler.closed = True
    with pytest.raises(errors.PeerRefusalError) as caught:
        await agent.contribute(_DIGEST, 3, "")
    shuffler.closed = False
    with pytest.raises(errors.PolicyError, match="was refused, and is not sent again"):
        await agent.contribute(_DIGEST, 3, "")
    saved = await agent.store.find("", _DIGEST)

    assert [] == shuffler.received
    assert caught.value.status == "FAILED_PRECONDITION"
    assert saved is not None
    assert SubmissionState.REFUSED is saved.state
    assert await agent.store.pending() == []


async def test_a_restarted_agent_resends_the_same_bytes(
    tmp_path: Path, shuffler: MemoryShuffler
) -> None:
    """The answer arrived, its acknowledgement was lost, and the agent stopped."""
    taking = shuffler.submit

    async def unacknowledged(digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        await taking(digest, envelope, token)
        raise errors.PeerError("the acknowledgement was lost")

    shuffler.submit = unacknowledged  # type: ignore[method-assign]
    stopped = agent_of(tmp_path, _CASE, shuffler, seed=1)
    with pytest.raises(errors.PeerError):
        await stopped.contribute(_DIGEST, 3, "")
    stopped.store.close()
    shuffler.submit = taking  # type: ignore[method-assign]
    restarted = agent_of(tmp_path, _CASE, shuffler, seed=2)
    await restarted.resend_pending()
    pending = await restarted.store.pending()
    restarted.store.close()

    first, second = shuffler.received
    assert first == second
    assert [] == pending


async def test_of_a_person_one_sealed_report_of_a_task_exists_for_ever(tmp_path: Path) -> None:
    """With two shufflers too: another value, a lost answer and a restart send the same bytes."""
    case, digest = _CHAIN, _CHAIN.signed.digest()
    shuffler = MemoryShuffler(case.signed)
    shuffler.reachable = False
    policy = generous(case.identity.public_identity(), relay_identity=RELAY.public_identity())
    kept = set[bytes]()
    for seed, value in enumerate((3, 4, 3, 0)):
        agent = agent_of(tmp_path, case, shuffler, seed=seed, policy=policy)
        shuffler.reachable = seed > 1
        with suppress(errors.PeerError):
            await agent.contribute(digest, value, "")
        await agent.resend_pending()
        saved = await agent.record(digest, "")
        kept.add(saved.envelope or b"")
        agent.store.close()

    assert kept == {*shuffler.received}
    assert 1 == len(kept)


async def test_one_agent_is_one_person_unless_configured(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """A name is refused before the task is fetched."""
    with pytest.raises(errors.WireError, match="one person"):
        await agent.contribute(_DIGEST, 3, "someone else")
    assert shuffler.fetched == 0

    agent.several_persons = True
    await agent.contribute(_DIGEST, 3, "one")
    await agent.contribute(_DIGEST, 3, "two")
    assert len(set(shuffler.received)) == 2
    with pytest.raises(errors.WireError, match="name the person"):
        await agent.contribute(_DIGEST, 3, "")


async def test_a_refused_answer_spends_nothing(agent: Agent, shuffler: MemoryShuffler) -> None:
    """A value outside the domain, or a task over a cap: nothing is drawn, saved or sent."""
    with pytest.raises(errors.ValueRangeError):
        await agent.contribute(_DIGEST, 100, "")
    agent.policy = dataclasses.replace(agent.policy, total_central_epsilon_cap=0.5)
    with pytest.raises(errors.BudgetError, match=r"total_central_epsilon_cap is 0\.5"):
        await agent.contribute(_DIGEST, 3, "")

    assert await agent.store.find("", _DIGEST) is None
    assert [] == shuffler.received
    assert np.random.default_rng(1).random() == agent.rng.random()


_COLUMNS = {
    "schema_version": ["version", "readable_from"],
    "submissions": [
        *("person", "task_digest", "envelope", "local_epsilon", "state"),
        *("central_epsilon", "delta", "coalition_epsilon", "chained"),
    ],
    "evidence": [
        *("person", "task_digest", "leaves", "deadline", "inclusion", "receipt", "most_leaves")
    ],
    "lasting_secret": ["fingerprint"],
    "lasting_answers": ["person", "task_digest", "scope", "text_hash", "permanent_epsilon"],
    "tokens": ["person", "task_digest", "key", "challenge", "pending", "token"],
    "log_evidence": ["task_digest", "refused", "origin", "size", "evidence"],
    "store_id": ["id"],
    "pinned_relays": ["identity"],
    "charges": [
        *("person", "task_digest", "envelope_hash", "local_epsilon", "central_epsilon", "delta"),
        "coalition_epsilon",
        "chained",
    ],
    "counted_store": ["id"],
}
"""All that a device keeps; adding a column is a review of whether it could hold a value."""


_WIDE = published(domain_size=10_000_000, buckets=251)
"""A task with so many items that few bytes equal a value by chance."""


async def test_no_true_value_is_ever_stored(tmp_path: Path) -> None:
    """No column, cell or byte of the files has it, while the agent runs or afterwards."""
    found = []
    # Two values: three bytes among the ciphertexts' are found by chance once in 30,000 times, in
    # the same form of both with probability 2e-9.
    for value in (9_867_531, 7_135_246):
        shuffler, path = MemoryShuffler(_WIDE.signed), tmp_path / str(value)
        path.mkdir()
        agent = agent_of(path, _WIDE, shuffler)
        await agent.contribute(_WIDE.signed.digest(), value, "")
        stored = _bytes_in(path)
        # The look is at the right place: the envelope is there.
        assert shuffler.received[0] in stored
        assert await agent.store.pin_fingerprint(b"f" * 32)
        agent.store.close()
        stored += _bytes_in(path)
        connection = sqlite3.connect(path / "budget.sqlite")
        connection.execute("ATTACH ? AS counter", (str(path / "charges.sqlite"),))
        tables = "SELECT name FROM sqlite_master UNION SELECT name FROM counter.sqlite_master"
        names = [name for (name,) in connection.execute(tables)]
        read = {name: connection.execute(f"SELECT * FROM {name}") for name in names}  # noqa: S608  # no input
        assert {name: [c[0] for c in rows.description] for name, rows in read.items()} == _COLUMNS
        rows = [row for table in read.values() for row in table]
        connection.close()
        # No token or lasting answer is left, nothing was logged, the counter was not checked,
        # and no second shuffler is pinned.
        assert len(_COLUMNS) - 6 == len(rows)
        assert not [c for row in rows for c in row if c == value or str(value) in str(c)]
        found.append({name for name, form in _forms(value).items() if form in stored})

    assert not set.intersection(*found)


def _bytes_in(path: Path) -> bytes:
    """Return the bytes of all files in a folder."""
    return b"".join(file.read_bytes() for file in path.iterdir())


def _forms(value: int) -> dict[str, bytes]:
    """Return likely encodings of a value; SQLite uses three bytes."""
    layouts = ("<I", ">I", "<Q", ">Q", "<f", ">f", "<d", ">d")
    low = [value >> shift & 127 | 128 for shift in (0, 7, 14)]
    return {
        **{layout: struct.pack(layout, value) for layout in layouts},
        "three bytes": value.to_bytes(3),
        "three bytes, little end first": value.to_bytes(3, "little"),
        "varint": bytes([*low, value >> 21]),
        "decimal": str(value).encode(),
        "hexadecimal": f"{value:x}".encode(),
        "hexadecimal, upper case": f"{value:X}".encode(),
    }


async def test_a_confirmed_claim_is_remembered_by_its_digest_alone(agent: Agent) -> None:
    """The next person's call does not recompute it; another task's claim is computed."""
    agent.several_persons = True
    for person in ("one", "two"):
        await agent.contribute(_DIGEST, 3, person)
    assert [_DIGEST] == list(agent._confirmed)

    cheating = dataclasses.replace(_CASE.task, central_epsilon=0.01)
    signed = _CASE.identity.sign(cheating.to_bytes())
    shuffler = MemoryShuffler(signed)
    agent.shuffler = shuffler
    for _ in range(2):
        with pytest.raises(errors.PolicyError, match="do not satisfy its claim of central epsilon"):
            await agent.contribute(signed.digest(), 3, "one")
    assert [] == shuffler.received


class _Channel:
    """Records calls and answers them."""

    def __init__(self) -> None:
        self.made: list[tuple[str, bytes, dict[str, Any]]] = []

    def unary_unary(self, path: str, *_: object, **__: object) -> Any:
        """Return the call of a path."""

        async def call(request: Any, **beside: Any) -> Any:
            self.made.append((path, request.SerializeToString(), beside))
            return shuffler_pb2.SubmitResponse(receipt=bytes(64))

        return call

    stream_unary = unary_stream = stream_stream = unary_unary


async def test_a_submission_carries_no_headers() -> None:
    """The call has only the envelope, its token, and a timeout."""
    channel = _Channel()
    await RemoteShuffler(cast("grpc.aio.Channel", channel)).submit(_DIGEST, b"envelope", b"token")
    [(path, sent, beside)] = channel.made
    expected = shuffler_pb2.SubmitRequest(task_digest=_DIGEST, envelope=b"envelope", token=b"token")

    assert "/shuffledp.v1.Shuffler/Submit" == path
    assert expected.SerializeToString() == sent
    assert {"timeout"} == set(beside)


_PERSONS = ("a", "b", "c")


async def _owing(path: Path, shuffler: MemoryShuffler) -> tuple[Agent, DeviceStore]:
    """Return an agent of three people with unsent answers."""
    agent = agent_of(path, _CASE, shuffler, several_persons=True)
    shuffler.reachable = False
    for person in _PERSONS:
        with pytest.raises(errors.PeerError):
            await agent.contribute(_DIGEST, 3, person)
    shuffler.reachable = True
    return agent, agent.store


async def test_a_stale_refusal_does_not_undo_an_acknowledgement(tmp_path: Path) -> None:
    """Another person's answer arrives during a resend, which does not send it again."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, store = await _owing(tmp_path, shuffler)
    taking = shuffler.submit

    async def meanwhile(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        shuffler.submit = taking  # type: ignore[method-assign]
        receipt = await taking(_DIGEST, envelope)
        await agent.contribute(_DIGEST, 3, "b")
        shuffler.closed = True
        return receipt

    shuffler.submit = meanwhile  # type: ignore[method-assign]
    await agent.resend_pending()

    found = [await store.find(person, _DIGEST) for person in _PERSONS]
    assert [SubmissionState.ARRIVED, SubmissionState.ARRIVED, SubmissionState.REFUSED] == [
        saved.state for saved in found if saved
    ]
    assert {"a", "b"} == {kept.person for kept in await store.list_unchecked()}
    store.close()


@pytest.mark.parametrize(
    "error",
    [errors.WireError("a receipt has 65 bytes"), errors.PeerRefusalError("INTERNAL", "none")],
)
async def test_one_answer_that_cannot_be_sent_holds_up_no_other(
    tmp_path: Path, error: Exception
) -> None:
    """Any error of this project may stop the first one."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, store = await _owing(tmp_path, shuffler)
    taking = shuffler.submit

    async def first_fails(*_: object) -> bytes:
        shuffler.submit = taking  # type: ignore[method-assign]
        raise error

    shuffler.submit = first_fails  # type: ignore[assignment]
    await agent.resend_pending()

    assert len(_PERSONS) - 1 == len(shuffler.received)
    store.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_calls_at_once_take_turns(tmp_path: Path, *, fails: bool) -> None:
    """Three calls submit one answer: one at a time, until it arrives once."""
    shuffler = MemoryShuffler(_CASE.signed)
    agent, store = await _owing(tmp_path, shuffler)
    taking, under_way, most, tries = shuffler.submit, 0, 0, 0

    async def slowly(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        nonlocal under_way, most, tries
        under_way, tries = under_way + 1, tries + 1
        most, first = max(most, under_way), tries == 1
        await asyncio.sleep(0.02)
        under_way -= 1
        if fails and first:
            raise errors.PeerError("away")
        return await taking(_DIGEST, envelope)

    shuffler.submit = slowly  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(_outcome(agent.contribute(_DIGEST, 3, "a"))) for _ in range(3)]
    await agent.resend_pending()

    assert most == 1
    assert sum(isinstance(call.result(), errors.PeerError) for call in calls) == int(fails)
    assert len(set(shuffler.received)) == len(shuffler.received) == len(_PERSONS)
    store.close()


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except errors.PeerError as error:
        return error


_PERSON: Final = "Zacharias Quandt"

_written: list[str] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Record files opened for writing. An audit hook cannot be removed, only disabled."""
    if _written is not None and event == "open" and isinstance(arguments[0], str | bytes):
        mode, flags = arguments[1] or "", arguments[2]
        if set(mode) & set("wax+") or flags & 3:
            _written.append(str(arguments[0]))


sys.addaudithook(_hear)


@contextmanager
def _writes() -> Iterator[list[str]]:
    """Yield the names of files that are opened for writing while a block runs."""
    global _written  # noqa: PLW0603  # one hook per process
    heard: list[str] = []
    _written = heard
    try:
        yield heard
    finally:
        _written = None


async def _answered(
    path: Path, value: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[object, ...], list[str]]:
    """Answer on a new device while offline, resend, and answer again."""
    shuffler, pauses, pause = MemoryShuffler(_CASE.signed), list[float](), asyncio.sleep

    async def noted(seconds: float, *more: Any) -> Any:
        pauses.append(seconds)
        return await pause(0, *more)

    agent = agent_of(path, _CASE, shuffler, several_persons=True)
    with monkeypatch.context() as patch, _writes() as writes:
        patch.setattr(asyncio, "sleep", noted)
        shuffler.reachable = False
        with suppress(errors.PeerError):
            await agent.contribute(_DIGEST, value, _PERSON)
        await agent.resend_pending()
        shuffler.reachable = True
        await agent.resend_pending()
        await agent.contribute(_DIGEST, value, _PERSON)
    agent.store.close()
    names = tuple(sorted(file.name for file in path.iterdir()))
    return (shuffler.fetched, list(map(len, shuffler.received)), names, pauses), writes


async def test_a_device_behaves_alike_whatever_its_value(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls, pauses, logs and files are alike; it writes only to its store."""
    caplog.set_level(logging.DEBUG)
    seen, lines = list[object](), list[object]()
    for value in (0, 1, 2, 50, 98, 99):
        folder = tmp_path / str(value)
        folder.mkdir()
        caplog.clear()
        done, writes = await _answered(folder, value, monkeypatch)
        seen.append(done)
        lines.append([(record.msg, getattr(record, "fields", {})) for record in caplog.records])
        assert [] == [name for name in writes if "budget.sqlite" not in name]
        assert _PERSON not in caplog.text

    assert [seen[0]] * len(seen) == seen
    assert [lines[0]] * len(lines) == lines
    assert ("", "") == capsys.readouterr()


async def test_a_device_charges_the_same_text_once(tmp_path: Path) -> None:
    """Five answers with one text fit into ε∞; a sixth with another text exceeds the cap."""
    texts = TextDraft(bits=32, cohorts=8, question="state")
    fields = kind_draft_fields("rappor", population="staff", texts=texts, n_min=1000)
    case = published(**fields, target_size=2000, budget_epsilon=9.0)
    agent = agent_of(tmp_path, case, MemoryShuffler(case.signed))
    most = rappor_of(case.task).permanent_epsilon
    agent.policy = dataclasses.replace(
        agent.policy, total_local_epsilon_cap=most, total_central_epsilon_cap=most
    )

    async def answer(deadline: int, text: str) -> None:
        task = dataclasses.replace(case.task, deadline=case.task.deadline - deadline)
        signed = case.identity.sign(task.to_bytes())
        agent.shuffler = MemoryShuffler(signed)
        await agent.contribute(signed.digest(), text, "")

    for number in range(5):
        await answer(number, "Ohio")
    with pytest.raises(errors.BudgetError, match="their sum, since the text has changed"):
        await answer(6, "Utah")
    await answer(6, "Ohio")
    assert b"Ohio" not in _bytes_in(tmp_path)
