"""The shuffler sends reports only after the analyzer accepts the manifest."""

from collections.abc import AsyncIterator

import grpc
import pytest

from common.errors import PeerError, PeerRefusalError
from common.messages.batch import BatchId, BatchManifest
from common.runtime.rpc import bind, open_channel
from common.task.task import Task
from common.task_digest import TaskDigest
from shuffler import analyzer_client as client
from shuffler.analyzer_client import AnalyzerClient
from tests.support.services import Services

_CHUNKS = 100
_TIMES = 20
"""Without waiting, two answers in three would be lost."""


class _Reports:
    """Counts the chunks that are read; none is a sealed report."""

    def __init__(self, sealed_report_bytes: int) -> None:
        self.asked = 0
        self._chunk = bytes(sealed_report_bytes)

    async def chunks(self) -> AsyncIterator[bytes]:
        for _ in range(_CHUNKS):
            self.asked += 1
            yield self._chunk


def _manifest(digest: TaskDigest) -> BatchManifest:
    return BatchManifest(
        task_digest=digest, batch_id=BatchId(digest[:16]), n_users=_CHUNKS // 2, n_reports=_CHUNKS
    )


async def test_a_refused_manifest_is_answered_before_a_report_is_sent(services: Services) -> None:
    """The reason arrives every time; an INTERNAL would be retried for ever."""
    reports = _Reports(1000)
    async with services.channel_as("shuffler") as channel:
        for _ in range(_TIMES):
            with pytest.raises(PeerRefusalError, match="there is no task with this digest"):
                await AnalyzerClient(channel).deliver(
                    _manifest(TaskDigest(bytes(32))), reports.chunks()
                )

    assert 0 == reports.asked


async def test_a_batch_that_is_there_is_not_sent_again(services: Services) -> None:
    """A manifest alone is answered with the same commitment."""
    signed = await services.publish()
    size = Task.from_bytes(signed.task_bytes).sealed_report_bytes
    first, again = _Reports(size), _Reports(size)
    async with services.channel_as("shuffler") as channel:
        analyzer = AnalyzerClient(channel)
        commitment = await analyzer.deliver(_manifest(signed.digest()), first.chunks())
        for _ in range(_TIMES):
            repeated = await analyzer.deliver(_manifest(signed.digest()), again.chunks())
            assert commitment == repeated

    assert (_CHUNKS, 0) == (first.asked, again.asked)


async def test_an_analyzer_that_does_not_answer_a_manifest_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both sides wait for each other, until the call ends with a retryable error."""
    monkeypatch.setattr(client, "LONG_DEADLINE", 0.3)

    async def answered(requests: AsyncIterator[bytes], _context: object) -> bytes:
        async for _ in requests:  # until the stream ends
            pass
        return b""

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(answered)
    calls = grpc.method_handlers_generic_handler("shuffledp.v1.Analyzer", {"DeliverBatch": handler})
    server = grpc.aio.server(handlers=[calls])
    address = bind(server, "127.0.0.1:0", None)
    await server.start()
    reports = _Reports(1000)
    async with open_channel(address, "analyzer", None) as channel:
        with pytest.raises(PeerError, match="does not respond"):
            await AnalyzerClient(channel).deliver(
                _manifest(TaskDigest(bytes(32))), reports.chunks()
            )
    await server.stop(None)

    assert 0 == reports.asked
