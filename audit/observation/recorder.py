"""Run the three services once, with recording proxies between, and record each party's view."""

import asyncio
import io
import logging
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal
from urllib.request import ProxyHandler, build_opener

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.audit.harness import services
from shuffledp.audit.harness.party_cores import SCHEDULE
from shuffledp.audit.harness.services import RecordedCall, RecordingProxy, Services
from shuffledp.audit.harness.tasks import reduced_draft
from shuffledp.audit.scenario import AuditSubject
from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.result import Result
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.rpc import LONG_DEADLINE, reply
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.common.wire.batches import chunk_from_wire, delivery_from_wire, part_from_wire
from shuffledp.common.wire.submissions import contribution_to_wire
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.protos.shuffledp.v1 import (
    analyzer_pb2,
    shuffler_pb2,
    shuffler_pb2_grpc,
    user_agent_pb2_grpc,
)
from shuffledp.shuffler.storage.group import NUMBER_BITS, open_group
from shuffledp.shuffler.storage.sqlite_store import SqliteGroups
from shuffledp.user_agent.contribution import Contributor

Moment = Literal["collecting", "delivering", "over"]
MOMENTS: Final[tuple[Moment, ...]] = ("collecting", "delivering", "over")
PARTIES: Final = ("user_agent", "shuffler", "analyzer")

_REPORTS_PER_USER: Final = 11
"""Reports per user for which the sample size is set; if users send more, fewer take part."""
_MIN_USERS: Final = 40
_AGENT_USERS: Final = 20
_SINGLE_USERS: Final = 50
"""Users without an agent who call the shuffler themselves; all others submit in bulk."""
_BULK_SIZE: Final = 96
_BATCH_KEYS: Final = "batch-*.key"
_MAX_LABELS: Final = 1000
_TIMEOUT: Final = 120.0
"""Timeout of the run in seconds; each user adds one second."""
_METRICS: Final = {"metrics_listen": "127.0.0.1:0"}
_AGENT: Final[dict[str, Any]] = {
    **_METRICS,
    **dict.fromkeys(("local_epsilon_cap", "total_local_epsilon_cap"), float("inf")),
    **dict.fromkeys(("coalition_epsilon_cap", "total_coalition_epsilon_cap"), float("inf")),
    "total_central_epsilon_cap": 1e6,
    "total_delta_cap": 0.9,
    "inclusion_check_seconds": 30.0,
}


@dataclass(kw_only=True, eq=False, repr=False)
class RunRecord:
    """Messages, files, logs, metrics and the services' private keys of one run."""

    signed: SignedTask
    analyzer_key: hpke.HpkePrivateKey
    shuffler_key: hpke.HpkePrivateKey
    names: tuple[str, ...]
    """Planted names of people, then the planted header value of all calls."""
    label: str
    """Planted word in the label of every item of the task."""
    to_shuffler: Sequence[RecordedCall]
    """Calls by devices, in arrival order."""
    to_analyzer: Sequence[RecordedCall]
    """Calls by the shuffler."""
    groups: tuple[bytes, ...]
    """Decrypted groups of sealed reports on the shuffler's disk during the collection."""
    disks: dict[tuple[str, Moment], dict[str, bytes]]
    """Contents of files, by party and moment, then by path."""
    batch_keys: dict[str, bytes]
    metrics: dict[str, str]
    """Metrics pages, by party and moment."""
    result: Result
    logs: str = ""

    @cached_property
    def task(self) -> Task:
        """The task."""
        return Task.from_bytes(self.signed.task_bytes)

    @cached_property
    def envelopes(self) -> list[bytes]:
        """Envelopes that the shuffler received, in arrival order."""
        found = list[bytes]()
        for call in self.to_shuffler:
            if call.method == "Submit":
                found.append(shuffler_pb2.SubmitRequest.FromString(call.requests[0]).envelope)
            elif call.method == "SubmitBulk":
                found += shuffler_pb2.SubmitBulkRequest.FromString(call.requests[0]).envelopes
        return found

    @cached_property
    def submissions(self) -> list[tuple[bytes, bytes]]:
        """Id and sealed reports of each envelope, in arrival order."""
        key, context = self.shuffler_key, hpke.envelope_context(self.signed.digest())
        return [split_submission(key.open(envelope, context)) for envelope in self.envelopes]

    @cached_property
    def sent(self) -> list[bytes]:
        """Sealed reports of all submissions, in arrival order."""
        sealed = b"".join(sealed for _, sealed in self.submissions)
        return hpke.split_every(sealed, self.task.sealed_report_bytes)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """Index in `submissions` of each report in `sent`."""
        size = self.task.sealed_report_bytes
        numbers = [len(sealed) // size for _, sealed in self.submissions]
        return np.repeat(np.arange(len(numbers)), numbers)

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Index of each sealed report in `sent`."""
        return {report: place for place, report in enumerate(self.sent)}

    def delivering(self, method: Literal["BeginDelivery", "DeliverPart"]) -> list[RecordedCall]:
        """Return the calls that began to deliver the batch, or delivered a part of it."""
        return [call for call in self.to_analyzer if call.method == method]

    @cached_property
    def delivery(self) -> tuple[BatchManifest, list[bytes]]:
        """The manifest and the sealed reports of the last delivery, in order."""
        last = self.delivering("BeginDelivery")[-1]
        begun = analyzer_pb2.BeginDeliveryRequest.FromString(last.requests[0])
        parts = dict[int, bytes]()
        for call in self.delivering("DeliverPart"):
            first, *rest = map(analyzer_pb2.DeliverPartRequest.FromString, call.requests)
            parts[part_from_wire(first).part] = b"".join(map(chunk_from_wire, rest))
        reports = b"".join(parts[number] for number in sorted(parts))
        manifest, _ = delivery_from_wire(begun)
        return manifest, hpke.split_every(reports, self.task.sealed_report_bytes)

    @cached_property
    def opened(self) -> list[bytes | None]:
        """Plaintexts in delivery order; None where a report does not open."""
        opener = self.analyzer_key.opener(hpke.report_context(self.signed.digest()))
        return [opener(report) for report in self.delivery[1]]

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Index in `sent` of each delivered report; -1 for the shuffler's own dummies."""
        places = [self.places.get(report, -1) for report in self.delivery[1]]
        return np.array(places, dtype=np.int64)


def stored_groups(state: Path) -> tuple[bytes, ...]:
    """Decrypt the shuffler's stored groups of submissions to unfinished tasks, in disk order."""
    stored, found = SqliteGroups(state / "spool.sqlite"), list[bytes]()
    for name, key in services.secrets_of(state, _BATCH_KEYS).items():
        batch_id = BatchId(bytes.fromhex(Path(name).stem.removeprefix("batch-")))
        groups = stored.read(batch_id, 0, 1 << NUMBER_BITS)
        found += [open_group(number, sealed, BatchKey(key)).reports for number, sealed in groups]
    return tuple(found)


def record_run(subject: AuditSubject, rng: Generator) -> RunRecord:
    """
    Run the audited task once, reduced to a small batch, and record the run.

    Raises ValueError if no small batch of the task has a finite guarantee. Cost: a few seconds,
    plus a millisecond per report.
    """
    users = subject.sizes.users
    draft = reduced_draft(
        subject.task,
        most_reports=_REPORTS_PER_USER * users,
        n_users=(max(10, users // 10), users // 3, users),
    )
    if draft is None:
        raise ValueError("no small batch of this task has a finite guarantee")
    each = math.ceil(subject.task.expected_reports_per_user)
    n_users = max(draft.n_min, min(users, max(_MIN_USERS, users * _REPORTS_PER_USER // each)))
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder, _captured_logs() as text:
        recorder = _Recorder(Path(folder), n_users, rng)
        recorder.shuffler_ports = {"executor_of": subject.ports.shuffler_executor}
        record = asyncio.run(recorder.run(draft))
        record.logs = text.getvalue()
        return record


@contextmanager
def _captured_logs() -> Iterator[io.StringIO]:
    """Log into a buffer, at DEBUG in the production format; restore the loggers on exit."""
    own, root = logging.getLogger("shuffledp"), logging.getLogger()
    before = (own.handlers[:], own.level, own.propagate, root.handlers[:])
    with redirect_stderr(io.StringIO()) as text:
        logs.configure("DEBUG")
    try:
        yield text
    finally:
        own.handlers[:], own.level, own.propagate, root.handlers[:] = before


class _Recorder(Services):
    def __init__(self, directory: Path, n_users: int, rng: Generator) -> None:
        super().__init__(directory)
        self._n_users, self._rng = n_users, rng
        self._before_shuffler = RecordingProxy(party="shuffler")
        self._before_analyzer = RecordingProxy(on_delivery=lambda: self._look("delivering"))
        self._disks = dict[tuple[str, Moment], dict[str, bytes]]()
        self._batch_keys, self._metrics = dict[str, bytes](), dict[str, str]()

    async def run(self, draft: TaskDraft) -> RunRecord:
        """Run the services: start, collect, release, stop."""
        tls = self.directory / "tls"
        await self.start_analyzer(**_METRICS)
        await self._before_analyzer.start(tls, self.analyzer.address)
        await self.start_shuffler(analyzer=self._before_analyzer.address, **_METRICS)
        await self._before_shuffler.start(tls, self.shuffler.address)
        await self.start_user_agent(shuffler=self._before_shuffler.address, **_AGENT)
        try:
            async with asyncio.timeout(_TIMEOUT + self._n_users):
                return await self._collect_and_release(draft)
        finally:
            await self.stop()
            await self._before_shuffler.stop()
            await self._before_analyzer.stop()

    async def _collect_and_release(self, draft: TaskDraft) -> RunRecord:
        rng, state = self._rng, self.directory / "shuffler"
        values: list[int] = rng.integers(0, draft.domain_size, self._n_users).tolist()
        names = [_planted_word(rng) for _ in range(min(_AGENT_USERS, self._n_users // 4))]
        label, header = _planted_word(rng), _planted_word(rng)
        labels = tuple(f"{label} {item}" for item in range(draft.domain_size))
        named = labels if len(labels) < _MAX_LABELS and draft.edges is None else ()
        async with (
            self.operator() as analyzer_operator,
            self.shuffler_operator() as shuffler_operator,
        ):
            wanted = self.keyed(replace(draft, labels=named))
            signed, _ = await analyzer_operator.publish_task(wanted)
            task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
            await self._contribute(signed, names, values, header)
            await self._scrape("collecting")
            self._look("collecting")
            groups = stored_groups(state)
            await shuffler_operator.close_batch(digest)
            result = await analyzer_operator.wait_for_result(digest, pause=0.1)
            while services.secrets_of(state, _BATCH_KEYS):  # noqa: ASYNC110  # no call reports that the key is destroyed
                await asyncio.sleep(0.05)
            await self._scrape("over")
            self._look("over")
        return RunRecord(
            signed=signed,
            analyzer_key=self._private_key("analyzer", task.suite, task.analyzer_key),
            shuffler_key=self._private_key("shuffler", task.suite, task.shuffler_key),
            names=(*names, header),
            label=label,
            to_shuffler=self._before_shuffler.calls,
            to_analyzer=self._before_analyzer.calls,
            groups=groups,
            disks=self._disks,
            batch_keys=self._batch_keys,
            metrics=self._metrics,
            result=result,
        )

    async def _contribute(
        self, signed: SignedTask, names: Sequence[str], values: Sequence[int], header: str
    ) -> None:
        """Submit through the user agent, then one by one, then in bulk."""
        task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
        contributor, held = Contributor(task, digest), [value_of(task, item) for item in values]
        envelopes = [contributor.prepare(v, self._rng).envelope for v in held[len(names) :]]
        async with (
            self.channel("user_agent", self.user_agent.address) as agent,
            self.channel("shuffler", self._before_shuffler.address) as channel,
        ):
            person = user_agent_pb2_grpc.UserAgentStub(agent)
            devices = shuffler_pb2_grpc.ShufflerStub(channel)
            calls: list[tuple[Any, Any]] = [
                (person.Contribute, contribution_to_wire(digest, value, name))
                for name, value in zip(names, held, strict=False)
            ]
            calls += [
                (devices.Submit, shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope))
                for envelope in envelopes[:_SINGLE_USERS]
            ]
            for start in range(_SINGLE_USERS, len(envelopes), _BULK_SIZE):
                bulk = envelopes[start : start + _BULK_SIZE]
                request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=bulk)
                calls.append((devices.SubmitBulk, request))
            metadata = (("x-request-id", header),)
            for method, request in calls:
                await reply(method(request, timeout=LONG_DEADLINE, metadata=metadata), "a service")

    def _look(self, moment: Moment) -> None:
        """Record the batch keys and, once per moment, the files of all parties."""
        self._batch_keys |= services.secrets_of(self.directory / "shuffler", _BATCH_KEYS)
        for party in PARTIES:
            self._disks.setdefault((party, moment), services.files_of(self.directory / party))

    async def _scrape(self, moment: Moment) -> None:
        for party in PARTIES:
            address = self.published(party, "metrics_address")
            direct = build_opener(ProxyHandler({})).open  # a proxy could not reach this machine
            page = await asyncio.to_thread(direct, f"http://{address}/metrics")
            self._metrics[f"{party} {moment}"] = page.read().decode()

    def _private_key(self, party: str, suite: str, public: bytes) -> hpke.HpkePrivateKey:
        store = KeyStore(StateDirectory.open(self.directory / party), SCHEDULE)
        return store.private_key(suite, public, whose=f"{party}_key")


def _planted_word(rng: Generator) -> str:
    return f"planted-{rng.bytes(8).hex()}"
