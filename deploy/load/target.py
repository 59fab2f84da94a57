"""Targets of a load run, running services, local ones or a sink; and what these use."""

import asyncio
import math
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Literal, Self, cast
from urllib.request import ProxyHandler, build_opener

import grpc
import numpy as np
import psutil
from prometheus_client.parser import text_string_to_metric_families

from shuffledp.common.crypto.signing import SIGNATURE_BYTES, SignedTask, SigningIdentity
from shuffledp.common.errors import PlanError, SettingsError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime import rpc, validation
from shuffledp.common.runtime.admission_interceptor import SERVICE_ERROR
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import Usage, measure
from shuffledp.common.runtime.tls import Tls, development_files
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import submissions, tasks
from shuffledp.common.wire.fields import MAX_MESSAGE_BYTES
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.shuffler import ShufflerClient, shuffler_at
from shuffledp.deploy.datasets.sources import dataset
from shuffledp.deploy.load.behaviour import LoadPlan, check_users, expected_answers
from shuffledp.deploy.load.scenario import HERE, UNCHECKED, LoadChecks, LoadScenario, LoadTarget
from shuffledp.deploy.load.sender import Destination
from shuffledp.deploy.load.users import SealedUsers, draw_values
from shuffledp.deploy.tasks import drafts
from shuffledp.deploy.tasks.drafts import DEMO_PARAMETERS, closing_draft
from shuffledp.deploy.tasks.task_view import preview
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc

GENERATOR: Final = "load generator"
SINK: Final = "sink"
TargetKind = Literal["services", "local", "sink"]
_PERIOD: Final = 0.5
"""Seconds between samples; a shorter peak may be missed."""
_TIMEOUT: Final = 5.0
"""Timeout of a metrics page in seconds."""
_MAX_PAGE: Final = 2**20
_CPU: Final = "shuffledp_process_cpu_seconds_total"
_MEMORY: Final = "shuffledp_process_resident_memory_bytes"


@dataclass(slots=True)
class PartyUsage:
    """Resource usage of one party over a run."""

    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class Meter:
    """Samples this program, local processes and metrics pages at entry, at exit and in between."""

    def __init__(self, pids: Callable[[], Mapping[str, int]], pages: Mapping[str, str]) -> None:
        self._pids = pids
        self._pages = pages
        self._last: dict[str, float] = {}
        self.usage: dict[str, PartyUsage] = {}

    def __enter__(self) -> Self:
        self._sample()
        self._ended = Event()
        self._sampling = Thread(target=self._repeat, daemon=True)
        self._sampling.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampling.join()
        self._sample()

    def _repeat(self) -> None:
        while not self._ended.wait(_PERIOD):
            self._sample()

    def _sample(self) -> None:
        self.record(GENERATOR, _measure_generator())
        for party, pid in self._pids().items():
            with suppress(psutil.Error):  # it has ended
                self.record(party, measure(pid))
        for party, url in self._pages.items():
            with suppress(OSError, ValueError, HTTPException, SettingsError):
                self.record(party, read_usage(url))

    def record(self, party: str, sample: Usage) -> None:
        """Add a sample; ignore a drop in processor time, as after a restart."""
        usage = self.usage.setdefault(party, PartyUsage())
        grown = sample.cpu_seconds - self._last.get(party, sample.cpu_seconds)
        usage.cpu_seconds += max(0.0, grown)
        usage.peak_memory_bytes = max(usage.peak_memory_bytes, sample.resident_bytes)
        self._last[party] = sample.cpu_seconds


def _measure_generator() -> Usage:
    """Sample this process and its sending processes, but not the services that it started."""
    others = [child.pid for child in multiprocessing.active_children() if child.name != SINK]
    cpu, resident = 0.0, 0
    for pid in (os.getpid(), *others):
        with suppress(psutil.Error):  # it has ended
            process = psutil.Process(pid)
            cpu += sum(process.cpu_times()[:2])
            resident += process.memory_info().rss
    return Usage(cpu_seconds=cpu, resident_bytes=resident)


def read_usage(url: str) -> Usage:
    """Read a metrics page without a proxy, or raise OSError or SettingsError."""
    with build_opener(ProxyHandler({})).open(url, timeout=_TIMEOUT) as answer:
        return usage_from(answer.read(_MAX_PAGE))


def usage_from(page: bytes) -> Usage:
    """Parse a service's metrics page, or raise SettingsError."""
    try:
        families = text_string_to_metric_families(page.decode("utf-8"))
        found = {sample.name: sample.value for family in families for sample in family.samples}
        usage = Usage(cpu_seconds=float(found[_CPU]), resident_bytes=int(found[_MEMORY]))
    except Exception as error:  # the parser raises many kinds
        raise SettingsError("a metrics page does not state the usage of its process") from error
    if not (0 <= usage.cpu_seconds < math.inf and usage.resident_bytes >= 0):
        raise SettingsError("a metrics page states a negative or infinite usage")
    return usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Services under load, and the available operators' clients."""

    kind: TargetKind
    to: Destination
    signed: SignedTask
    processes: Callable[[], Mapping[str, int]] = dict
    """Function that returns process ids on this machine, by party."""
    pages: Mapping[str, str] = field(default_factory=dict)
    operator: OperatorClient | None = None
    shuffler: ShufflerClient | None = None

    async def check_empty(self) -> None:
        """Raise PlanError if the batch is not collecting or not empty; skip without the token."""
        if self.shuffler is None:
            return
        batch = await self.shuffler.progress(self.signed.digest())
        if batch.state is not BatchState.COLLECTING:
            raise PlanError(f"the batch is {batch.state.value}; it must be collecting")
        if batch.n_users:
            raise PlanError(
                f"the batch holds {batch.n_users} users; it must be empty, because simulated "
                "users would spoil the collection: publish a separate task"
            )


@asynccontextmanager
async def connect(
    target: LoadTarget,
    digest: TaskDigest,
    checks: LoadChecks = UNCHECKED,
    kind: TargetKind = "services",
    processes: Callable[[], Mapping[str, int]] = dict,
) -> AsyncIterator[Target]:
    """Connect also as the operators whose tokens are given, and fetch the task as devices do."""
    address, authority, operator, watcher = target.shuffler or "", target.authority, None, None
    async with AsyncExitStack() as stack:
        if checks.analyzer is not None:
            own = (checks.analyzer_token_file, checks.certificate, checks.key)
            at_analyzer = OperatorClient.connect(checks.analyzer, authority, *own)
            operator = await stack.enter_async_context(at_analyzer)
        if (token := target.shuffler_token_file) is not None:
            at_shuffler = ShufflerClient.connect(address, authority, token)
            watcher = await stack.enter_async_context(at_shuffler)
        async with shuffler_at(address, authority) as device:
            signed = await device.fetch_task(digest)
        Task.verified(signed, digest, None)
        yield Target(
            kind=kind,
            to=Destination(address, None if authority is None else validation.read_file(authority)),
            signed=signed,
            processes=processes,
            pages=checks.metrics,
            operator=operator,
            shuffler=watcher,
        )


def load_draft(target: LoadTarget, plan: LoadPlan) -> TaskDraft:
    """
    Return a file's draft without keys, or the demo's, which closes with the last user of a plan.

    With a ramp, the demo's n_min is 1, because an early end may leave users unsent. Raises
    PlanError if the plan's users are fewer than a file's n_min or more than its target_size.
    """
    if target.draft is None:
        stored = expected_answers(plan.draw_kinds())[Outcome.STORED]
        fields = {"domain_size": dataset(plan.dataset, stored).domain_size, **DEMO_PARAMETERS}
        fields = drafts.with_two_shufflers(fields) if target.two_shufflers else fields
        draft = closing_draft(fields, stored, now=time.time())
        return draft if plan.ramp is None else replace(draft, n_min=1)
    draft = drafts.read(target.draft)
    check_users(plan.draw_kinds(), draft.n_min, draft.target_size)
    return draft


def columns_of(file: Path | None) -> str | None:
    """Return the names of a draft's attributes, which are columns of a file; None without any."""
    tables = None if file is None else drafts.read(file).tables
    return None if tables is None else ",".join(each.name for each in tables.attributes)


def target_of(
    scenario: LoadScenario, plan: LoadPlan, digest: TaskDigest | None, replayed: SealedUsers | None
) -> AbstractAsyncContextManager[Target]:
    """Return the target of a scenario; the task of running services is named or replayed."""
    target, signed = scenario.target, None if replayed is None else replayed.signed
    if target.sink:
        return sink(signed or unpublished(plan, target))
    if target.shuffler is None:
        return local(plan, target)
    return connect(target, digest or cast("SignedTask", signed).digest(), scenario.checks)


@asynccontextmanager
async def local(plan: LoadPlan, target: LoadTarget = HERE) -> AsyncIterator[Target]:
    """
    Start services on this machine, and publish a task from the target's draft or the demo's.

    The draft's claims and the data set's values are checked first.
    """
    draft = load_draft(target, plan)
    task, rng = preview(draft, now=time.time()), np.random.default_rng(plan.seed)
    draw_values(plan.dataset, plan.draw_kinds(), task, rng)
    with tempfile.TemporaryDirectory(prefix="shuffledp-load-") as folder:
        parties = Cluster(Path(folder), two_shufflers=draft.relay is not None)
        async with parties as cluster, cluster.operator() as operator:
            signed, _ = await operator.publish_task(cluster.keyed(draft))
            services = {"shuffler": cluster.shuffler, "analyzer": cluster.analyzer}
            services |= {"relay": cluster.relay} if cluster.relay else {}
            tokens = {party: cluster.directory / party / "operator.token" for party in services}
            there = LoadTarget(
                shuffler=cluster.shuffler.address,
                shuffler_token_file=tokens["shuffler"],
                authority=cluster.authority,
            )
            address, token = cluster.analyzer.address, tokens["analyzer"]
            checks = LoadChecks(analyzer=address, analyzer_token_file=token)
            pids = {party: child.process.pid for party, child in services.items()}
            async with connect(there, signed.digest(), checks, "local", lambda: pids) as connected:
                yield connected


def unpublished(plan: LoadPlan, target: LoadTarget = HERE) -> SignedTask:
    """Return a signed task for a sink, with throw-away keys."""
    return SigningIdentity.generate().sign(preview(load_draft(target, plan), now=0.0).to_bytes())


@asynccontextmanager
async def sink(signed: SignedTask) -> AsyncIterator[Target]:
    """Start a server in a separate process that answers like a shuffler and stores nothing."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe()
    with tempfile.TemporaryDirectory(prefix="shuffledp-load-") as folder:
        args = (sender, signed, Path(folder))
        process = spawn.Process(target=_run, args=args, name=SINK, daemon=True)
        process.start()
        sender.close()  # recv then fails if the process dies
        try:
            address = await asyncio.to_thread(receiver.recv)
            there = LoadTarget(shuffler=address, authority=Path(folder) / "authority.pem")
            pids = {SINK: process.pid or 0}
            async with connect(there, signed.digest(), UNCHECKED, "sink", lambda: pids) as target:
                yield target
        except EOFError as error:
            raise SettingsError("the sink did not start") from error
        finally:
            process.terminate()
            process.join()


def _run(pipe: Connection, signed: SignedTask, folder: Path) -> None:
    """Serve the sink in its process, and send its address through the pipe."""

    async def serve() -> None:
        clock = SystemClock()
        tls = Tls.open(development_files(folder, "shuffler", clock), "shuffler", clock)
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)])
        sink = _Sink(signed)  # type: ignore[abstract]  # it has the methods that devices call
        shuffler_pb2_grpc.add_ShufflerServicer_to_server(sink, server)
        address = rpc.bind(server, "127.0.0.1:0", tls)
        await server.start()
        pipe.send(address)
        await server.wait_for_termination()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(serve())


class _Sink(shuffler_pb2_grpc.ShufflerServicer):
    """Answers `stored` to every envelope of one of the task's lengths."""

    def __init__(self, signed: SignedTask) -> None:
        self._task = shuffler_pb2.FetchTaskResponse(task=tasks.signed_task_to_wire(signed))
        self._sizes = frozenset(Task.from_bytes(signed.task_bytes).envelope_sizes)

    async def FetchTask(self, *_: object) -> shuffler_pb2.FetchTaskResponse:  # noqa: N802
        return self._task

    async def Submit(  # noqa: N802
        self,
        request: shuffler_pb2.SubmitRequest,
        context: Any,  # noqa: ANN401  # gRPC's own types vary
    ) -> shuffler_pb2.SubmitResponse:
        if len(request.envelope) not in self._sizes:
            message = "of no length that the task has"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message, SERVICE_ERROR)
        return shuffler_pb2.SubmitResponse(receipt=bytes(SIGNATURE_BYTES))

    async def SubmitBulk(  # noqa: N802
        self, request: shuffler_pb2.SubmitBulkRequest, _: object
    ) -> shuffler_pb2.SubmitBulkResponse:
        fits = [len(envelope) in self._sizes for envelope in request.envelopes]
        outcomes = [Outcome.STORED if valid else Outcome.MALFORMED for valid in fits]
        return submissions.outcomes_to_wire(outcomes, bytes(SIGNATURE_BYTES))
