"""
What the shuffler holds and writes, and what crosses to the analyzer, looked at from outside.

Every search here has a counterpart that must find something, so that it cannot pass by looking in
the wrong place.
"""

import asyncio
import itertools
import re
import sqlite3
import struct
import time
from pathlib import Path

import numpy as np

from common.crypto.hpke import envelope_context, report_context
from common.crypto.signing import SignedTask
from common.messages.submission import unpack
from common.runtime.key_store import RING_FILE
from common.runtime.rpc import open_channel, reply
from common.task.task import Task
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.support.children import publish
from tests.support.keys import active_key
from user_agent.contribution import Contributor

_USERS = 40
_WINDOW = 8


def _envelopes(signed: SignedTask) -> list[bytes]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(1)
    return [contributor.prepare(number, rng) for number in range(_USERS)]


async def _submit(cluster: Cluster, signed: SignedTask, envelopes: list[bytes]) -> None:
    authority = cluster.authority.read_bytes()
    async with open_channel(cluster.shuffler.address, "shuffler", authority) as channel:
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        for envelope in envelopes:
            request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
            await reply(stub.Submit(request, timeout=20), "it")


def _memory(pid: int) -> bytes:
    """Everything readable in a process's memory."""
    found = []
    with (Path("/proc") / str(pid) / "mem").open("rb", buffering=0) as memory:
        for line in (Path("/proc") / str(pid) / "maps").read_text(encoding="utf-8").splitlines():
            start, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
            if not rights.startswith("rw"):
                continue
            try:
                memory.seek(int(start, 16))
                found.append(memory.read(int(end, 16) - int(start, 16)))
            except (OSError, ValueError, OverflowError):
                continue  # a region of the kernel's own
    return b"".join(found)


def _written(directory: Path) -> bytes:
    """Everything in a directory, but for when its keys were made."""
    paths = [path for path in sorted(directory.rglob("*")) if path.name != RING_FILE]
    return b"".join(path.read_bytes() for path in paths if path.is_file())


async def test_the_shuffler_never_holds_a_key_that_opens_a_report(cluster: Cluster) -> None:
    """
    The analyzer's private key is in the analyzer's memory, in nobody else's, and in no file: its
    own is encrypted.
    """
    signed = await publish(cluster, 1000)
    await _submit(cluster, signed, _envelopes(signed))
    private = active_key(cluster.analyzer.state).private_bytes()

    assert private in _memory(cluster.analyzer.process.pid)
    assert private not in _written(cluster.analyzer.state)
    held = _memory(cluster.shuffler.process.pid)
    assert private not in held
    assert private not in _memory(cluster.user_agent.process.pid)
    for child in (cluster.shuffler, cluster.user_agent):
        assert private not in _written(child.state) + child.log.read_bytes()
    # The same look finds the shuffler's own key, so it does see what the shuffler holds.
    own = active_key(cluster.shuffler.state).private_bytes()
    assert own in held


async def test_nothing_that_the_shuffler_writes_contains_a_report_or_an_id(
    cluster: Cluster,
) -> None:
    """
    Neither plaintext reports nor sealed ones nor submission ids are on its disk or in its log,
    while the batch is collected: rows lie under the batch's key.

    A large field, so that a report is not found by chance among zeros.
    """
    signed = await publish(cluster, 1000, domain_size=10_000_000, buckets=251)
    task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
    envelopes = _envelopes(signed)
    await _submit(cluster, signed, envelopes)
    shuffler_key = active_key(cluster.shuffler.state)
    analyzer_key = active_key(cluster.analyzer.state)
    written = _written(cluster.shuffler.state) + cluster.shuffler.log.read_bytes()

    for envelope in envelopes:
        submission = unpack(shuffler_key.open(envelope, envelope_context(digest)), task)
        assert envelope not in written
        assert submission.submission_id not in written
        assert submission.submission_id.hex().encode() not in written
        for start in range(0, len(submission.sealed_reports), task.sealed_report_bytes):
            sealed = submission.sealed_reports[start : start + task.sealed_report_bytes]
            assert sealed not in written
            report = analyzer_key.open(sealed, report_context(digest))
            assert report not in written
    # The look is at the right place: the submissions are there, each in a group of its own.
    connection = sqlite3.connect(cluster.shuffler.state / "spool.sqlite")
    groups = connection.execute("SELECT count(*), max(length(sealed)) FROM submission_groups")
    sealing = 12 + 16
    longest = sealing + task.reports_per_user * task.sealed_report_bytes
    assert [(_USERS, longest)] == groups.fetchall()
    connection.close()


async def test_nothing_crosses_the_shuffler_but_sealed_reports(cluster: Cluster) -> None:
    """
    No 8 bytes of an envelope, a submission id, a peer's address or a time reach the analyzer,
    other than inside the sealed reports themselves; afterwards the batch's key is gone.
    """
    started = time.time()
    signed = await publish(cluster, _USERS)
    task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
    envelopes = _envelopes(signed)
    shuffler_key = active_key(cluster.shuffler.state)
    submissions = [
        unpack(shuffler_key.open(envelope, envelope_context(digest)), task)
        for envelope in envelopes
    ]
    await cluster.analyzer.stop()
    await cluster.start_analyzer(cluster.analyzer.address)
    recorded = await _record_delivery(cluster, signed, envelopes)
    sealed = {
        submission.sealed_reports[start : start + task.sealed_report_bytes]
        for submission in submissions
        for start in range(0, len(submission.sealed_reports), task.sealed_report_bytes)
    }
    size = task.sealed_report_bytes
    delivered = [recorded[start : start + size] for start in range(0, len(recorded), size)]

    assert sealed == set(delivered)
    assert len(delivered) == 2 * _USERS
    in_order = b"".join(submission.sealed_reports for submission in submissions)
    assert recorded != in_order

    everything = _written(cluster.analyzer.state) + cluster.analyzer.log.read_bytes() + recorded
    windows = _windows(everything)
    for envelope, submission in zip(envelopes, submissions, strict=True):
        # The envelope's ciphertext, and the id within it, but not the sealed reports within it.
        assert not windows & _windows(envelope)
        assert not windows & _windows(submission.submission_id)
    first, last = int(started) - 1, int(time.time()) + 2
    for moment in range(first, last):
        assert str(moment).encode() not in everything
    assert not _packed_times(everything, first, last)
    assert not _stored_times(cluster.analyzer.state, first, last)
    assert not list(cluster.shuffler.state.glob("batch-*.key"))
    # The look would find what is there: the sealed reports themselves.
    assert windows & _windows(submissions[0].sealed_reports)


def _packed_times(data: bytes, first: float, last: float) -> list[str]:
    """
    The layouts of 8 bytes in which a time between two is in the data: seconds with fractions, and
    whole ones, milliseconds or microseconds.

    Finds one of 10 seconds in .2 MB of random bytes with probability 1e-6.
    """
    found = []
    for layout, units in (("i8", (1, 10**3, 10**6)), ("f8", (1,))):
        for order, start in itertools.product("<>", range(8)):
            whole = (len(data) - start) // 8 * 8
            numbers = np.frombuffer(data[start : start + whole], dtype=order + layout)
            for unit in units:
                within = (numbers >= first * unit) & (numbers <= last * unit)
                found += [f"{order}{layout} in 1/{unit} s"] * int(within.sum())
    return found


def _stored_times(state: Path, first: float, last: float) -> list[str]:
    """The columns of a party's databases in which a number is a time of this run."""
    found = []
    for path in state.glob("*.sqlite"):
        connection = sqlite3.connect(path)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            rows = connection.execute(f"SELECT * FROM {table}")  # noqa: S608  # no input
            names = [column[0] for column in rows.description]
            found += [
                f"{table}.{name}"
                for row in rows
                for name, cell in zip(names, row, strict=True)
                if isinstance(cell, int | float)
                and any(first * unit <= cell <= last * unit for unit in (1, 10**3, 10**6))
            ]
        connection.close()
    return found


def test_the_look_for_times_would_notice(tmp_path: Path) -> None:
    """Wherever in the bytes one lies; and a number of four bytes, as databases store them."""
    now = 1_900_000_000
    for layout, unit in (("<q", 1), (">q", 10**3), ("<d", 1), (">d", 1)):
        assert _packed_times(b"abc" + struct.pack(layout, now * unit) + b"d", now, now + 1)
    assert not _packed_times(bytes(100), now, now + 1)
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("CREATE TABLE t (a BLOB, b INTEGER)")
    connection.execute("INSERT INTO t VALUES (x'00', ?)", (now * 10**3,))
    connection.commit()
    connection.close()
    assert ["t.b"] == _stored_times(tmp_path, now, now + 1)
    assert not _stored_times(tmp_path, now + 1, now + 2)


def _windows(data: bytes) -> set[bytes]:
    return {data[start : start + _WINDOW] for start in range(len(data) - _WINDOW + 1)}


async def _record_delivery(cluster: Cluster, signed: SignedTask, envelopes: list[bytes]) -> bytes:
    """Submit, and give the sealed reports in the order in which they reached the analyzer."""
    connection = sqlite3.connect(cluster.analyzer.state / "analyzer.sqlite")
    # Chunks are deleted when the batch is released; a trigger keeps a copy for this test.
    connection.executescript(
        "CREATE TABLE seen (position INTEGER, sealed_reports BLOB);"
        "CREATE TRIGGER see AFTER INSERT ON chunks BEGIN "
        "INSERT INTO seen VALUES (NEW.position, NEW.sealed_reports); END;"
    )
    connection.close()
    await _submit(cluster, signed, envelopes)
    async with cluster.operator() as operator, asyncio.timeout(60):
        await operator.wait_for_result(signed.digest())
    async with asyncio.timeout(20):
        while list(cluster.shuffler.state.glob("batch-*.key")):
            await asyncio.sleep(0.05)
    connection = sqlite3.connect(cluster.analyzer.state / "analyzer.sqlite")
    rows = connection.execute("SELECT sealed_reports FROM seen ORDER BY position").fetchall()
    connection.execute("DROP TABLE seen")
    connection.close()
    return b"".join(row[0] for row in rows)
