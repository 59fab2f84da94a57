"""The .proto files match the access table, and a delivery carries only permitted facts."""

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Final

from shuffledp.common.messages.batch import BatchManifest, BatchPart
from shuffledp.common.runtime.access import CALLS
from shuffledp.protos.shuffledp.v1 import analyzer_pb2

_PROTOS: Final = Path(__file__).parents[2] / "protos" / "shuffledp" / "v1"


def test_every_rpc_has_a_row_in_the_access_table() -> None:
    """The table has no row for an RPC that no .proto file defines."""
    names = [
        f"shuffledp.protos.shuffledp.v1.{path.stem}_pb2" for path in sorted(_PROTOS.glob("*.proto"))
    ]
    services = [
        service
        for name in names
        for service in import_module(name).DESCRIPTOR.services_by_name.values()
    ]
    methods = {f"/{each.full_name}/{method.name}" for each in services for method in each.methods}

    assert methods == {method for method in CALLS if method.startswith("/shuffledp.")}


def test_a_delivery_tells_the_analyzer_few_facts_beside_the_reports() -> None:
    """
    A new field is a privacy decision: it must not link a report to a user or a time.

    What a relay dropped is a number of submissions that broken or dishonest senders made.
    """
    facts = {"task_digest", "batch_id", "n_users", "n_reports", "n_discarded", "by_length"}

    assert facts == {field.name for field in dataclasses.fields(BatchManifest)}
    assert facts == set(analyzer_pb2.BatchManifest.DESCRIPTOR.fields_by_name)
    begin = analyzer_pb2.BeginDeliveryRequest.DESCRIPTOR.fields_by_name
    assert {"manifest", "n_parts"} == set(begin)
    request = analyzer_pb2.DeliverPartRequest.DESCRIPTOR.fields_by_name
    assert {"part", "sealed_reports"} == set(request)
    of_part = {"task_digest", "part", "n_reports", "content_hash"}
    assert of_part == {field.name for field in dataclasses.fields(BatchPart)}
    assert of_part == set(analyzer_pb2.BatchPart.DESCRIPTOR.fields_by_name)
