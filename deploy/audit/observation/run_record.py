"""The record of one run of the services, and the reports followed through it."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context
from common.crypto.signing import SignedTask
from common.messages.batch import BatchManifest
from common.messages.result import Result
from common.messages.submission import Submission, unpack
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from common.wire.batches import chunk_from_wire, manifest_from_wire
from deploy.audit.harness.relay import RelayedCall
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2
from shuffler.storage.group import KEY_BYTES, BatchKey, open_group

Moment = Literal["collecting", "delivering", "over"]
MOMENTS: Final[tuple[Moment, ...]] = ("collecting", "delivering", "over")
PARTIES: Final = ("user_agent", "shuffler", "analyzer")


@dataclass(kw_only=True, eq=False, repr=False)
class RunRecord:
    """One run: messages, files, logs, metrics, and the private keys of services that are gone."""

    signed: SignedTask
    analyzer_key: HpkePrivateKey
    shuffler_key: HpkePrivateKey
    names: tuple[str, ...]
    """Planted: persons' names, and a header of their calls."""
    label: str
    """Planted: a word in every item's label, which the task contains."""
    to_shuffler: Sequence[RelayedCall]
    """Calls of devices, in order of arrival."""
    to_analyzer: Sequence[RelayedCall]
    """Calls of the shuffler."""
    groups: tuple[bytes, ...] = ()
    """Sealed reports on the shuffler's disk while it collected, opened with the batch's key."""
    disks: dict[tuple[str, Moment], dict[str, bytes]] = field(default_factory=dict)
    """Files by party and moment, by path."""
    batch_keys: dict[str, bytes] = field(default_factory=dict)
    """Opened while they existed, by file name."""
    metrics: dict[str, str] = field(default_factory=dict)
    """Pages by party and moment."""
    released: Result | None = None
    logs: str = ""

    @property
    def result(self) -> Result:
        """The released result."""
        if self.released is None:
            raise ValueError("the run was recorded without its result")
        return self.released

    @cached_property
    def task(self) -> Task:
        """The task."""
        return Task.from_bytes(self.signed.task_bytes)

    @cached_property
    def envelopes(self) -> list[bytes]:
        """Envelopes that the shuffler received, in order of arrival."""
        found = list[bytes]()
        for call in self.to_shuffler:
            if call.method == "Submit":
                found.append(shuffler_pb2.SubmitRequest.FromString(call.requests[0]).envelope)
            elif call.method == "SubmitBulk":
                found += shuffler_pb2.SubmitBulkRequest.FromString(call.requests[0]).envelopes
        return found

    @cached_property
    def submissions(self) -> list[Submission]:
        """The opened envelopes."""
        key, context = self.shuffler_key, envelope_context(self.signed.digest())
        return [unpack(key.open(envelope, context), self.task) for envelope in self.envelopes]

    @cached_property
    def sent(self) -> list[bytes]:
        """Sealed reports in order of arrival."""
        together = b"".join(one.sealed_reports for one in self.submissions)
        return reports_in(together, self.task.sealed_report_bytes)

    @property
    def deliveries(self) -> list[RelayedCall]:
        """Calls that delivered the batch."""
        return [call for call in self.to_analyzer if call.method == "DeliverBatch"]

    @cached_property
    def delivery(self) -> tuple[BatchManifest, list[bytes]]:
        """The manifest, and sealed reports in the order of delivery."""
        return delivery_in(self.deliveries[-1].requests, self.task.sealed_report_bytes)

    @cached_property
    def opened(self) -> list[bytes | None]:
        """Plaintexts in the order of delivery; None where a report does not open."""
        opener = self.analyzer_key.opener(report_context(self.signed.digest()))
        return [opener(report) for report in self.delivery[1]]

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """For each delivered report its place in `sent`; -1 for the shuffler's own dummies."""
        places = {report: place for place, report in enumerate(self.sent)}
        return np.array([places.get(report, -1) for report in self.delivery[1]], dtype=np.int64)


def reports_in(together: bytes, size: int) -> list[bytes]:
    """Split sealed reports that stand one after the other."""
    return [together[start : start + size] for start in range(0, len(together), size)]


def delivery_in(requests: Sequence[bytes], size: int) -> tuple[BatchManifest, list[bytes]]:
    """Return the manifest and the sealed reports of a delivery."""
    first, *rest = map(analyzer_pb2.DeliverBatchRequest.FromString, requests)
    return manifest_from_wire(first), reports_in(b"".join(map(chunk_from_wire, rest)), size)


def files_of(state: Path) -> dict[str, bytes]:
    """Read a party's files; a file that vanishes meanwhile is left out."""
    found = {}
    for path in sorted(state.rglob("*")):
        if path.is_file():
            try:
                found[str(path.relative_to(state))] = path.read_bytes()
            except FileNotFoundError:
                continue
    return found


def batch_keys(state: Path) -> dict[str, bytes]:
    """Open the keys of the shuffler's batches, by file name."""
    directory = StateDirectory.open(state)
    return {
        path.name: directory.secret(path.name, lambda: bytes(KEY_BYTES))
        for path in state.glob("batch-*.key")
    }


def stored_groups(state: Path, digest: bytes) -> tuple[bytes, ...]:
    """Open the groups of submissions that the shuffler holds for a task, in their disk order."""
    with closing(sqlite3.connect(state / "spool.sqlite")) as connection:
        rows = connection.execute(
            "SELECT batch_id, number, sealed FROM submission_groups "
            "JOIN batches USING (batch_id) WHERE task_digest = ? ORDER BY number",
            (digest,),
        ).fetchall()
    keys = batch_keys(state)
    return tuple(
        open_group(number, sealed, BatchKey(keys[f"batch-{batch_id.hex()}.key"]))
        for batch_id, number, sealed in rows
    )
