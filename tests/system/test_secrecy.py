"""
The memory and the files of running services, searched for keys, reports and ids.

Every search here has a counterpart that must find something, so that it cannot pass by looking in
the wrong place. `test_telemetry.py` searches traffic and logs.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from common.crypto.hpke import envelope_context, report_context
from common.messages.submission import unpack
from common.runtime.key_store import RING_FILE
from common.runtime.rpc import open_channel, reply
from common.task.task import Task
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.support.children import publish
from tests.support.keys import active_key
from tests.support.recording import sealed_reports
from user_agent.contribution import Contributor

_USERS = 40


def _memory(pid: int) -> bytes:
    """Read all writable memory of a process."""
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
    """Read the files of a directory, but for the one that says when its keys were made."""
    paths = [path for path in sorted(directory.rglob("*")) if path.name != RING_FILE]
    return b"".join(path.read_bytes() for path in paths if path.is_file())


async def test_no_party_holds_what_is_not_its_own_while_a_batch_collects(cluster: Cluster) -> None:
    """
    The analyzer's private key is in the analyzer's memory alone, and in no file: its own is
    encrypted. Neither reports, plain or sealed, nor ids are on the shuffler's disk or in its log.

    A large field, so that a report is not found by chance among zeros.
    """
    signed = await publish(cluster, 1000, domain_size=10_000_000, buckets=251)
    task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
    contributor, rng = Contributor(task, digest), np.random.default_rng(1)
    envelopes = [contributor.prepare(number, rng) for number in range(_USERS)]
    authority = cluster.authority.read_bytes()
    async with open_channel(cluster.shuffler.address, "shuffler", authority) as channel:
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        for envelope in envelopes:
            request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)
            await reply(stub.Submit(request, timeout=20), "it")
    analyzer_key, shuffler_key = (
        active_key(child.state) for child in (cluster.analyzer, cluster.shuffler)
    )
    private = analyzer_key.private_bytes()
    held = _memory(cluster.shuffler.process.pid)

    assert private in _memory(cluster.analyzer.process.pid)
    assert shuffler_key.private_bytes() in held
    assert private not in held
    assert private not in _memory(cluster.user_agent.process.pid)
    for child in (cluster.analyzer, cluster.shuffler, cluster.user_agent):
        assert private not in _written(child.state) + child.log.read_bytes()
    written = _written(cluster.shuffler.state) + cluster.shuffler.log.read_bytes()
    for envelope in envelopes:
        submission = unpack(shuffler_key.open(envelope, envelope_context(digest)), task)
        assert envelope not in written
        assert submission.submission_id not in written
        assert submission.submission_id.hex().encode() not in written
        for sealed in sealed_reports(submission, task):
            assert sealed not in written
            assert analyzer_key.open(sealed, report_context(digest)) not in written
    # The search is in the right place: the submissions are there, each in a group of its own.
    with closing(sqlite3.connect(cluster.shuffler.state / "spool.sqlite")) as connection:
        groups = connection.execute("SELECT count(*), max(length(sealed)) FROM submission_groups")
        sealing = 12 + 16
        longest = sealing + task.reports_per_user * task.sealed_report_bytes
        assert [(_USERS, longest)] == groups.fetchall()
