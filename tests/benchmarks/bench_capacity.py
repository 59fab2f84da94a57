"""
The costs behind `shuffledp capacity`, and its prediction beside a batch on two workers.

Runs real services over TLS, with tokens and two workers each, and attributes processor time by
process: a party's own process is a front-end or a coordinator, its children are workers. Each cost
is the difference of a large and a small batch, so that starting workers counts as part of a batch's
fixed time. Other programs delay the batch: the prediction is multiplied by the workers' slowdown,
the ratio of their time on a processor and waiting for one to the former.
`SHUFFLEDP_BENCH_REPORTS=1000000` measures a larger batch.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
import psutil
import pytest

from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.randomness import new_seed
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.common.runtime.service import GRPC_SILENCE
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.deploy.clients.issuer import IssuerClient, fetch_tokens
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.local_parties import Child
from shuffledp.deploy.load.sender import Destination
from shuffledp.deploy.load.users import seal_values
from shuffledp.lab.planning.capacity import cost, measure_opening_seconds
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.clients import RemoteIssuer
from shuffledp.user_agent.credentials import CredentialFile
from tests.benchmarks.conftest import Best, Line
from tests.support.clients import publish

_REPORTS: Final = int(os.environ.get("SHUFFLEDP_BENCH_REPORTS", "200000"))
_SMALL: Final = 8_000
_REPORTS_PER_USER: Final = 2
_DEVICES: Final = 400
_DEVICES_AT_ONCE: Final = 8
_ROUND: Final = 40
_CALL: Final = 1_000
"""Submissions of a bulk call."""
_CALLS_AT_ONCE: Final = 4
_WORKERS: Final = 2
_POLL_SECONDS: Final = 0.05
_TASK: Final[dict[str, Any]] = {"domain_size": 915, "buckets": 53}

Figures = dict[str, float]


def _usage(party: Child) -> Figures:
    """Return the processor seconds of a party's own process and of its workers."""
    process = psutil.Process(party.process.pid)
    own = process.cpu_times()
    running = sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))
    ended = own.children_user + own.children_system
    return {"own": own.user + own.system, "workers": ended + running}


def _block_bytes(party: Child) -> int:
    """Return the bytes of a party's blocks; files may vanish meanwhile."""
    total = 0
    for folder, _, names in os.walk(party.state / "blocks"):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(folder) / name).stat().st_size
    return total


def _loopback_bytes() -> int:
    return psutil.net_io_counters(pernic=True)["lo"].bytes_recv


async def _each(work: Callable[[Any], Any], items: Iterable[Any], at_once: int) -> None:
    waiting = iter(items)

    async def caller() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(caller() for _ in range(at_once)))


class _Run:
    """One batch: its processor seconds by process and phase, peak bytes of blocks, duration."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._parties = (cluster.shuffler, cluster.analyzer)
        self._logs = {p.party: p.log.stat().st_size for p in self._parties}
        self._scheduled: dict[int, tuple[int, int]] = {}
        """By worker: nanoseconds on a processor, and of waiting for one."""
        self._before = self._schedule()
        self.seconds: Figures = {}
        self.blocks = {p.party: 0 for p in self._parties}
        self.opening = 0.0
        """Processor seconds of one opening, before and after."""
        self.elapsed: Figures = {}
        """Duration of each phase."""

    @property
    def duration(self) -> float:
        """Elapsed seconds from the first submission to the result."""
        return sum(self.elapsed.values())

    @property
    def slowdown(self) -> float:
        """Ratio of the workers' time on a processor and waiting for one to the former."""
        ran, waited = 0, 0
        for pid, (run, wait) in self._scheduled.items():
            run_before, wait_before = self._before.get(pid, (0, 0))
            ran, waited = ran + run - run_before, waited + wait - wait_before
        return (ran + waited) / ran

    async def submit_and_wait(self, n_reports: int) -> None:
        """Submit a batch in bulk, and wait for its result."""
        n_users = n_reports // _REPORTS_PER_USER
        signed, spec = await _publish(self._cluster, n_users)
        people = CredentialFile(self._cluster.credentials).all()[:n_users]
        async with IssuerClient.connect(
            self._cluster.issuer.address, self._cluster.authority
        ) as issuer:
            tokens = await fetch_tokens(issuer, spec, signed.digest(), people, seed=new_seed())
        users = await asyncio.to_thread(
            seal_values, signed, np.zeros(n_users, dtype=np.uint8), [0] * n_users
        )
        shuffler, digest = self._cluster.shuffler, signed.digest()
        destination = Destination(shuffler.address, self._cluster.authority.read_bytes())
        async with destination.open() as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            await stub.FetchTask(shuffler_pb2.FetchTaskRequest(task_digest=digest))

            async def send(at: int) -> None:
                sent = users.rows(at, at + _CALL)
                await stub.SubmitBulk(
                    shuffler_pb2.SubmitBulkRequest(
                        task_digest=digest, envelopes=sent, tokens=tokens[at : at + len(sent)]
                    )
                )

            openings = [measure_opening_seconds()]
            times, used = [time.perf_counter()], [self._usages()]

            def mark() -> None:
                times.append(time.perf_counter())
                used.append(self._usages())

            await _each(send, range(0, n_users, _CALL), _CALLS_AT_ONCE)
            mark()
            await self._wait(("shuffler", '"permuted"'))
            mark()
            await self._wait(("shuffler", '"erased"'), ("analyzer", '"batch released"'))
            mark()
        self.opening = mean([*openings, measure_opening_seconds()])
        self.elapsed = dict(
            zip(("ingest", "shuffle", "deliver and count"), np.diff(times).tolist(), strict=True)
        )

        def spent(party: str, kind: str, first: int, last: int) -> float:
            return used[last][party, kind] - used[first][party, kind]

        self.seconds |= {
            "bulk": spent("shuffler", "own", 0, 1),
            "bulk opening": spent("shuffler", "workers", 0, 1),
            "shuffle": spent("shuffler", "workers", 1, 2),
            "prove": spent("shuffler", "workers", 2, 3),
            "send": spent("shuffler", "own", 1, 3),
            "receive": spent("analyzer", "own", 0, 3),
            "count": spent("analyzer", "workers", 0, 3),
        }

    async def _wait(self, *events: tuple[str, str]) -> None:
        """Wait until the services have logged each of the events."""
        waiting = set(events)
        while waiting:
            await asyncio.sleep(_POLL_SECONDS)
            self._schedule()
            for party in self._parties:
                self.blocks[party.party] = max(self.blocks[party.party], _block_bytes(party))
                log = party.log.read_bytes()[self._logs[party.party] :].decode()
                assert '"ERROR"' not in log, log
                waiting -= {
                    (name, text) for name, text in waiting if name == party.party and text in log
                }

    def _schedule(self) -> dict[int, tuple[int, int]]:
        """Note how long each worker has run and waited for a processor; return all notes."""
        for party in self._parties:
            for child in psutil.Process(party.process.pid).children():
                with suppress(FileNotFoundError, ProcessLookupError):
                    words = Path(f"/proc/{child.pid}/schedstat").read_text("ascii").split()
                    self._scheduled[child.pid] = (int(words[0]), int(words[1]))
        return dict(self._scheduled)

    def _usages(self) -> dict[tuple[str, str], float]:
        self._schedule()
        return {(p.party, kind): used for p in self._parties for kind, used in _usage(p).items()}


async def _run(cluster: Cluster, n_reports: int) -> _Run:
    run = _Run(cluster)
    await run.submit_and_wait(n_reports)
    return run


async def _publish(cluster: Cluster, n_users: int) -> tuple[SignedTask, TokenSpec]:
    """Publish a task with tokens."""
    spec = await cluster.create_token_key(int(time.time()) + 7 * 86_400)
    return await publish(cluster, n_users, **_TASK, tokens=spec), spec


async def _submissions(cluster: Cluster) -> Figures:
    """Return seconds per device that opens connections of its own, and bytes per submission."""
    signed, spec = await _publish(cluster, 10**6)
    users = seal_values(signed, np.zeros(2 * _DEVICES, dtype=np.uint8), [0] * (2 * _DEVICES))
    destination = Destination(cluster.shuffler.address, cluster.authority.read_bytes())
    digest = signed.digest()

    tokens: list[bytes] = []
    authority = destination.authority
    rng = np.random.default_rng(1)
    own_connection = (("grpc.use_local_subchannel_pool", 1),)

    async def issue(credential: bytes) -> None:
        pending = PendingToken.draw(spec.token_key(), spec.challenge(digest), rng.bytes)
        async with open_channel(
            cluster.issuer.address, "issuer", authority, options=own_connection
        ) as channel:
            request = pending.key.key_id, pending.blinded(), credential
            tokens.append(pending.finalize(await RemoteIssuer(channel).issue(*request)))

    async def submit(given: tuple[Any, bytes]) -> None:
        async with destination.open() as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            await stub.FetchTask(shuffler_pb2.FetchTaskRequest(task_digest=digest))
            envelope, token = given
            request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
            await stub.Submit(request)

    async def measured(
        party: Child, work: Callable[[Any], Any], items: Sequence[Any]
    ) -> tuple[float, float]:
        """Return a party's seconds and the bytes per item, of the second half."""
        await _each(work, items[:_DEVICES], _DEVICES_AT_ONCE)
        before, sent = _usage(party), []
        for at in range(_DEVICES, 2 * _DEVICES, _ROUND):
            so_far = _loopback_bytes()
            await _each(work, items[at : at + _ROUND], _DEVICES_AT_ONCE)
            sent.append((_loopback_bytes() - so_far) / _ROUND)
        # The least, since other programs may use the loopback interface meanwhile.
        return (_usage(party)["own"] - before["own"]) / _DEVICES, min(sent)

    people = CredentialFile(cluster.credentials).all()[: 2 * _DEVICES]
    token, token_bytes = await measured(cluster.issuer, issue, people)
    envelopes = users.rows(0, len(users.sizes))
    own, device_bytes = await measured(
        cluster.shuffler, submit, list(zip(envelopes, tokens, strict=True))
    )
    bulk = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes, tokens=tokens)
    return {
        "device": own,
        "device bytes": device_bytes,
        "token": token,
        "token bytes": token_bytes,
        "bulk bytes": bulk.ByteSize() / len(envelopes),
    }


def _predicted_seconds(opening: float) -> float:
    """Predict the time from the first bulk call to the result, if the parties take turns."""
    ingest = (cost("bulk") + cost("bulk opening")) / _REPORTS_PER_USER
    shared = _REPORTS * (ingest + cost("shuffle") + cost("prove") + cost("count"))
    delivery = _REPORTS * max(cost("send"), cost("receive"))
    return opening * (cost("batch") + delivery + shared / _WORKERS)


async def _measure(folder: Path) -> tuple[Figures, Figures]:
    """Return the measured costs, in the usual units, and durations predicted and measured."""
    workers = {
        f"SHUFFLEDP_{party}_OPENING_PROCESSES": str(_WORKERS) for party in ("SHUFFLER", "ANALYZER")
    }
    async with AsyncExitStack() as stack:
        people = [f"person {n}" for n in range(max(2 * _DEVICES, _REPORTS // _REPORTS_PER_USER))]
        cluster = Cluster(folder, {**GRPC_SILENCE, **workers}, people)
        stack.push_async_callback(cluster.stop)
        await cluster.start_analyzer()
        await cluster.start_shuffler()
        await cluster.start_issuer()
        openings = [measure_opening_seconds()]
        submissions = await _submissions(cluster)
        openings.append(measure_opening_seconds())
        _, small, large = [
            await _run(cluster, n_reports) for n_reports in (_SMALL, _SMALL, _REPORTS)
        ]  # the first batch also fills caches
        parties = (cluster.shuffler, cluster.analyzer)
        issued = 2 * _DEVICES + (2 * _SMALL + _REPORTS) // _REPORTS_PER_USER
        row_bytes = (cluster.issuer.state / "issuer.sqlite").stat().st_size / issued
        memory = max(psutil.Process(p.process.pid).memory_info().rss for p in parties)
    opening = large.opening
    each = {
        name: (spent - small.seconds[name] * opening / small.opening) / (_REPORTS - _SMALL)
        for name, spent in large.seconds.items()
    }
    costs = {
        name: spent * (_REPORTS_PER_USER if name.startswith("bulk") else 1) / opening
        for name, spent in each.items()
    }
    costs |= {
        **submissions,
        **{name: submissions[name] / mean(openings) for name in ("device", "token")},
        "token row bytes": row_bytes,
        "process memory": memory,
        "batch": small.duration / small.slowdown / small.opening,
        **{f"{party} blocks": size / _REPORTS for party, size in large.blocks.items()},
    }
    predicted = _predicted_seconds(opening) * large.slowdown
    durations = {
        "reports": _REPORTS,
        "opening_us": 1e6 * opening,
        "slowdown": large.slowdown,
        "predicted_s": predicted,
        "measured_s": large.duration,
        "predicted_over_measured": predicted / large.duration,
        **{f"{phase}_s": seconds for phase, seconds in large.elapsed.items()},
    }
    return costs, durations


def test_capacity(tmp_path: Path, best: Best, line: Line) -> None:
    """The shipped costs predict the duration of a batch on two workers within a quarter."""
    found: list[tuple[Figures, Figures]] = []
    best(1, lambda: found.append(asyncio.run(_measure(tmp_path))))
    costs, durations = found[0]
    for name, measured in costs.items():
        line(f"capacity: {name}", measured=measured, shipped=cost(name))
    line("capacity: two workers", **durations)
    assert 1 == pytest.approx(durations["predicted_over_measured"], abs=0.25)
