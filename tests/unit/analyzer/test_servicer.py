"""The analyzer's answers to a shuffler: a request for the reports, and its commitment to them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc

from analyzer.registry import TaskListing
from analyzer.servicer import AnalyzerServicer
from common.wire.batches import chunk_to_wire, manifest_to_wire
from protos.shuffledp.v1 import analyzer_pb2
from tests.support.analyzer_core import AnalyzerCore


class _Call:
    """The part of a call that the analyzer may use: any more could reveal something of reports."""

    def __init__(self) -> None:
        self.said: list[Sequence[tuple[str, str]]] = []

    async def send_initial_metadata(self, beside: Sequence[tuple[str, str]]) -> None:
        """Record metadata that is sent before the answer."""
        self.said.append(tuple(beside))


async def test_the_answer_reveals_nothing_about_single_reports(analyzer: AnalyzerCore) -> None:
    """A shuffler that tampered with one would learn which it was."""
    servicer = AnalyzerServicer(
        analyzer.registry,
        analyzer.releases,
        TaskListing(analyzer.store, analyzer.clock),
    )
    sealed = [bytes(60), *analyzer.sealed(200)[1:]]

    async def requests() -> AsyncIterator[analyzer_pb2.DeliverBatchRequest]:
        yield manifest_to_wire(analyzer.manifest(200))
        yield chunk_to_wire(b"".join(sealed))

    call = _Call()
    answer = await servicer.DeliverBatch(
        requests(), cast("grpc.aio.ServicerContext[Any, Any]", call)
    )
    await analyzer.settle()
    result = await analyzer.result()

    assert 1 == result.refused["unreadable"]
    assert [(("shuffledp-reports-wanted", "1"),)] == call.said
    assert ["commitment"] == [field.name for field, _ in answer.ListFields()]
