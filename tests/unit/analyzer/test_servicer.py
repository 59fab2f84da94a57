"""The analyzer's answers: to a shuffler, and to an operator's decision."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc
import pytest

from shuffledp.analyzer.servicer import AnalyzerServicer
from shuffledp.audit.harness.party_cores import part_header, parts_of
from shuffledp.common.errors import WireError
from shuffledp.common.wire.batches import delivery_to_wire, part_to_wire
from shuffledp.common.wire.results import decided_from_wire, decision_to_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2
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
    servicer = AnalyzerServicer(analyzer.staging, analyzer)
    digest, call = analyzer.signed.digest(), _Call()
    batch = parts_of([bytes(60), *analyzer.sealed(200)[1:]], 2)

    async def requests(number: int) -> AsyncIterator[analyzer_pb2.DeliverPartRequest]:
        yield part_to_wire(part_header(digest, number, batch[number]))
        yield analyzer_pb2.DeliverPartRequest(sealed_reports=b"".join(batch[number]))

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


async def test_a_decision_is_answered_with_its_entry(analyzer: AnalyzerCore) -> None:
    """A note is text of 1 to 500 characters, on both sides."""
    servicer = AnalyzerServicer(analyzer.staging, analyzer)
    digest = analyzer.signed.digest()
    await analyzer.deliver(50, [*(bytes([n]) * 60 for n in range(9)), *analyzer.sealed(50)[9:]])
    request = decision_to_wire(digest, "release", "n" * 500)
    for note in ("", " ", "n" * 501, "\udc80"):
        with pytest.raises(WireError, match="note"):
            decision_to_wire(digest, "release", note)
    for name, text in (("decision", "forget"), ("note", ""), ("note", "n" * 501)):
        wrong = analyzer_pb2.DecideBatchRequest.FromString(request.SerializeToString())
        setattr(wrong, name, text)
        with pytest.raises(WireError, match=f"the {name}"):
            await servicer.DecideBatch(wrong, _Call())

    entry = decided_from_wire(await servicer.DecideBatch(request, _Call()))
    await analyzer.settle()
    assert [entry] == (await analyzer.store.ledger(0))[:1]
    assert (digest, "n" * 500) == (entry.task_digest, entry.note)
    assert 9 == (await analyzer.result()).refused["unreadable"]
