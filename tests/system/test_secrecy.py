"""
Search the memory and files of running services for keys and reports.

Every search has a counterpart that must succeed, so that none passes by searching the wrong place.
`test_telemetry.py` searches traffic and logs.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from shuffledp.audit.harness.byte_search import encodings, kinds_found
from shuffledp.audit.harness.services import files_of
from shuffledp.audit.observation.recorder import stored_groups
from shuffledp.common.crypto.hpke import envelope_context, report_context, split_every
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.contribution import Contributor
from tests.support.clients import publish
from tests.support.keys import active_key

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


@pytest.mark.asyncio(loop_scope="session")
async def test_no_party_holds_another_partys_secrets_while_a_batch_collects(
    running: Cluster,
) -> None:
    """
    The analyzer's private key is only in the analyzer's memory: its key file is encrypted.

    The shuffler's disk and log hold no report, plain or sealed, and no id. A large field makes it
    unlikely that a report is found by chance among zeros.
    """
    signed = await publish(running, 1000, domain_size=10_000_000, buckets=251)
    task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
    contributor, rng = Contributor(task, digest), np.random.default_rng(1)
    envelopes = [contributor.prepare(number, rng).envelope for number in range(_USERS)]
    request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes)
    authority = running.authority.read_bytes()
    async with open_channel(running.shuffler.address, "shuffler", authority) as channel:
        await reply(shuffler_pb2_grpc.ShufflerStub(channel).SubmitBulk(request, timeout=20), "it")
    children = (running.analyzer, running.shuffler, running.user_agent)
    analyzer_key, shuffler_key = (active_key(child.state) for child in children[:2])
    private = analyzer_key.private_bytes()
    held = [_memory(child.process.pid) for child in children]
    written = [b"".join((*files_of(one.state).values(), one.log.read_bytes())) for one in children]
    context = envelope_context(digest)
    submissions = [split_submission(shuffler_key.open(one, context)) for one in envelopes]
    sealed = split_every(b"".join(each for _, each in submissions), task.sealed_report_bytes)

    assert [True, False, False] == [private in one for one in held]
    assert shuffler_key.private_bytes() in held[1]
    assert [] == [one for one in written if private in one]
    assert set() == kinds_found(
        {
            "envelope": envelopes,
            "id": [way for one, _ in submissions for way in encodings(one)],
            "sealed report": sealed,
            "report": [analyzer_key.open(one, report_context(digest)) for one in sealed],
        },
        written[1],
    )
    # Not the wrong place: the reports are there, under the batch's key.
    stored = b"".join(stored_groups(running.shuffler.state))
    assert [] == [report for report in sealed if report not in stored]
