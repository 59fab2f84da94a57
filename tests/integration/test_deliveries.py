"""The shuffler sends a part's reports only after the analyzer accepts its header."""

import hashlib
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchPart
from shuffledp.common.runtime.rpc import bind, open_channel
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler import delivery_client as client
from shuffledp.shuffler.delivery_client import AnalyzerClient
from tests.support.services import Services

_CHUNKS = 100
_TIMES = 20
"""Without waiting, two answers in three would be lost."""


class _Part:
    """A part, whose chunks are counted when they are read; none is a sealed report."""

    def __init__(self, digest: TaskDigest, sealed_report_bytes: int) -> None:
        self.asked = 0
        self._chunk = memoryview(bytes(sealed_report_bytes))
        content_hash = hashlib.sha256(bytes(_CHUNKS * sealed_report_bytes)).digest()
        self.header = BatchPart(
            task_digest=digest, part=0, n_reports=_CHUNKS, content_hash=content_hash
        )

    def chunks(self) -> Iterator[memoryview]:
        for _ in range(_CHUNKS):
            self.asked += 1
            yield self._chunk


def _manifest(digest: TaskDigest) -> BatchManifest:
    return BatchManifest(
        task_digest=digest, batch_id=BatchId(digest[:16]), n_users=_CHUNKS // 2, n_reports=_CHUNKS
    )


async def test_a_refused_part_is_answered_before_a_report_is_sent(services: Services) -> None:
    """The reason arrives every time; an INTERNAL would be retried for ever."""
    part = _Part(TaskDigest(bytes(32)), 1000)
    async with services.channel_as("shuffler") as channel:
        for _ in range(_TIMES):
            with pytest.raises(PeerRefusalError, match="there is no task with this digest"):
                await AnalyzerClient(channel).deliver_part(part.header, part.chunks())

    assert 0 == part.asked


async def test_a_part_that_is_there_is_not_sent_again(services: Services) -> None:
    """Its header alone is answered, before the batch is staged and afterwards."""
    signed = await services.publish()
    size = Task.from_bytes(signed.task_bytes).sealed_report_bytes
    part, again = _Part(signed.digest(), size), _Part(signed.digest(), size)
    async with services.channel_as("shuffler") as channel:
        analyzer = AnalyzerClient(channel)
        assert (set(), False) == await analyzer.begin_delivery(_manifest(signed.digest()), 1)
        await analyzer.deliver_part(part.header, part.chunks())
        assert ({0}, False) == await analyzer.begin_delivery(_manifest(signed.digest()), 1)
        commitment = await analyzer.finish_delivery(signed.digest())
        for _ in range(_TIMES):
            await analyzer.deliver_part(again.header, again.chunks())
            assert commitment == await analyzer.finish_delivery(signed.digest())
        assert ({0}, True) == await analyzer.begin_delivery(_manifest(signed.digest()), 1)

    assert (_CHUNKS, 0) == (part.asked, again.asked)


async def test_an_analyzer_that_does_not_answer_a_header_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both sides wait for each other, until the call ends with a retryable error."""
    monkeypatch.setattr(client, "SHORT_DEADLINE", 0.3)

    async def answered(requests: AsyncIterator[bytes], _context: object) -> bytes:
        async for _ in requests:  # until the stream ends
            pass
        return b""

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(answered)
    calls = grpc.method_handlers_generic_handler("shuffledp.v1.Analyzer", {"DeliverPart": handler})
    server = grpc.aio.server(handlers=[calls])
    address = bind(server, "127.0.0.1:0", None)
    await server.start()
    part = _Part(TaskDigest(bytes(32)), 1000)
    async with open_channel(address, "analyzer", None) as channel:
        with pytest.raises(PeerError, match="does not respond"):
            await AnalyzerClient(channel).deliver_part(part.header, part.chunks())
    await server.stop(None)

    assert 0 == part.asked
