"""The analyzer's answers to a shuffler: requests for reports, and its commitment to them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc

from analyzer.registry import TaskListing
from analyzer.servicer import AnalyzerServicer
from common.wire.batches import chunk_to_wire, delivery_to_wire, part_to_wire
from deploy.audit.harness.analyzer_core import part_header, parts_of
from protos.shuffledp.v1 import analyzer_pb2
from tests.support.analyzer_core import AnalyzerCore


class _Call:
    """The part of a call that the analyzer may use: any more could reveal something of reports."""

    def __init__(self) -> None:
        self.said: list[Sequence[tuple[str, str]]] = []

    async def send_initial_metadata(self, beside: Sequence[tuple[str, str]]) -> None:
        """Record metadata that is sent before the answer."""
        self.said.append(tuple(beside))


async def test_the_answers_reveal_nothing_about_single_reports(analyzer: AnalyzerCore) -> None:
    """A shuffler that tampered with one would learn which it was."""
    servicer = AnalyzerServicer(
        analyzer.registry,
        analyzer.releases,
        TaskListing(analyzer.store, analyzer.clock),
    )
    digest, call = analyzer.signed.digest(), _Call()
    batch = parts_of([bytes(60), *analyzer.sealed(200)[1:]], 2)

    async def requests(number: int) -> AsyncIterator[analyzer_pb2.DeliverPartRequest]:
        yield part_to_wire(part_header(digest, number, batch[number]))
        yield chunk_to_wire(b"".join(batch[number]))

    begun = await servicer.BeginDelivery(delivery_to_wire(analyzer.manifest(200), 2), call)
    context = cast("grpc.aio.ServicerContext[Any, Any]", call)
    stored = [await servicer.DeliverPart(requests(number), context) for number in (1, 0)]
    finish = analyzer_pb2.FinishDeliveryRequest(task_digest=digest)
    answer = await servicer.FinishDelivery(finish, call)
    await analyzer.settle()
    result = await analyzer.result()

    assert 1 == result.refused["unreadable"]
    assert 2 * [(("shuffledp-reports-wanted", "1"),)] == call.said
    assert ["commitment"] == [field.name for field, _ in answer.ListFields()]
    assert not any(empty.ListFields() for empty in (begun, *stored))
