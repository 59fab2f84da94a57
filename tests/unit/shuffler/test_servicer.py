"""What the shuffler answers a device: its place in the line of arrivals is not in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.crypto.signing import SigningIdentity
from protos.shuffledp.v1 import shuffler_pb2
from shuffler.servicer import ConnectionCount, Receipts, ShufflerServicer
from tests.support.shuffler_core import DIGEST, Shuffler


class _Call:
    """All that the shuffler may use of a call: with more, it could say something beside answers."""

    def peer(self) -> str:
        """Give gRPC's name for the other end."""
        return "ipv4:192.0.2.1:1"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Shuffler, ShufflerServicer]]:
    """A shuffler, and what answers its calls."""
    core = Shuffler(tmp_path)
    await core.start()
    receipts = Receipts(SigningIdentity.generate())
    yield core, ShufflerServicer(core.collection, ConnectionCount(0), receipts, core.inclusions)
    core.spool.close()


async def test_every_device_is_answered_alike(served: tuple[Shuffler, ShufflerServicer]) -> None:
    """In one length and with nothing beside it, whoever came before; a repeat is told of itself."""
    core, servicer = served
    lengths = set()
    for _ in range(4):
        request = shuffler_pb2.SubmitRequest(task_digest=DIGEST, envelope=core.envelope())
        answer = await servicer.Submit(request, _Call())
        lengths.add((answer.repeated, len(answer.SerializeToString())))
    assert 1 == len(lengths)
    assert (await servicer.Submit(request, _Call())).repeated

    before = await _asked(servicer)
    await core.submit(1)
    assert before == await _asked(servicer)


async def _asked(servicer: ShufflerServicer) -> bytes:
    request = shuffler_pb2.GetBatchStatusRequest(task_digest=DIGEST)
    return (await servicer.GetBatchStatus(request, _Call())).SerializeToString()
