"""People whose devices are the one in TypeScript, in Node, while services are killed."""

import asyncio
import json
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.analyzer.finalize import estimate_result, mixture_of_result
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.mechanisms.base import is_null
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.messages.result import Estimate, Histogram, Means, Result, ShareTables
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.local_cluster import Cluster, kept_address
from tests.support.kind_tasks import kind_draft_fields
from tests.support.node import WEB, install, node
from tests.support.tasks import draft
from tests.support.tools import tool

_PEOPLE: Final = int(os.environ.get("SHUFFLEDP_WEB_PEOPLE", "2000"))
"""Number of people, each of whom answers all tasks."""
_SEED: Final = int(os.environ.get("SHUFFLEDP_KILL_SEED", "1"))
"""Seed of the people's draws, and of the times of kills and the killed services."""
_PATIENCE: Final = 300.0
_DAY: Final = 86_400
_HIDDEN: Final = {"local_epsilon": float("inf"), "dummies_per_user": 0.0}
_EDGES: Final = EdgesSpec(low=0.0, high=9.0, buckets=9)
_NOISE: Final = GeometricNoise(peak=150, left_weight=7 * 2**27, right_weight=7 * 2**27, most=320)


def _radices(*radices: int) -> NumberDraft:
    return NumberDraft(low=0.0, high=9.0, radices=radices)


_TASKS: Final[tuple[tuple[dict[str, Any], tuple[Any, ...]], ...]] = (
    ({"protocol": "sh", "domain_size": 8, "local_epsilon": 4.0}, (0, 1, 1, 7)),
    ({"protocol": "ldp-oue", "domain_size": 9, "local_epsilon": 2.0}, (8, 0, 3)),
    (
        {"protocol": "mixdump", "domain_size": 4, "labels": tuple("abcd"), "local_epsilon": 8.0}
        | {"dummies_per_user": 1.5},
        ("a", "b", "#3"),
    ),
    (
        {"protocol": "fe1", "domain_size": 30, "buckets": 7, **_HIDDEN, "dummies_per_user": 6.0},
        (29, 4),
    ),
    (
        {"protocol": "hierarchy", "buckets": 3, "edges": _EDGES, **_HIDDEN}
        | {"domain_size": 9, "dummies_per_user": 12.0},
        (0.5, 8.9, 4),
    ),
    (
        {"protocol": "digits", "numbers": _radices(3, 3, 2), **_HIDDEN}
        | {"domain_size": 1, "dummies_per_user": 9.0},
        (0.5, 9.0, 4.321),
    ),
    (
        {"protocol": "geo-vector-digits", "numbers": _radices(5, 4), **_HIDDEN}
        | {"domain_size": 2, "shuffler": ShufflerSpec(noise=_NOISE)},
        ("0.5, 9", (3.7, 0)),
    ),
    (
        kind_draft_fields("tables", dummies_per_user=4.5),
        ("flu / 37 / no", ["none", 4.5, "#1"], "cold / 90 / yes"),
    ),
)
"""Drafts, and the values of the people, in turn."""


class _WebCluster(Cluster):
    """Services that devices reach over HTTP, at addresses that stay when they are killed."""

    def __init__(self, directory: Path, people: int) -> None:
        super().__init__(directory, people=[f"person {n}" for n in range(people)])
        self.http = {
            party: kept_address(directory / party / "http_address")
            for party in ("shuffler", "issuer")
        }

    def _edge(self, party: str) -> dict[str, Any]:
        return {"http_listen": self.http[party], "http_plain": True, "relays": ["127.0.0.0/8"]}

    async def start_shuffler(self, **changes: Any) -> None:
        """Start the shuffler with HTTP."""
        await super().start_shuffler(**self._edge("shuffler") | changes)

    async def start_issuer(self, **changes: Any) -> None:
        """Start the issuer with HTTP; again, with the same people."""
        changes = self._edge("issuer") | changes
        if not self.credentials.exists():
            await super().start_issuer(**changes)
            return
        changes |= {"issuer_name": "issuer.localhost", "analyzer_identity": self.identity}
        changes["people"] = str(self.directory / "people.txt")
        self.issuer = await self._start("issuer", **changes)

    async def kill(self, moments: random.Random, done: asyncio.Event) -> None:
        """Kill one of the two at a time, and start it again, until all is done."""
        while not done.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), moments.uniform(2.0, 15.0))
            child, start = self.issuer, self.start_issuer
            if moments.random() < 0.5:
                child, start = self.shuffler, self.start_shuffler
            child.process.kill()
            await child.process.wait()
            await start()


async def _publish(cluster: Cluster, fields: dict[str, Any]) -> SignedTask:
    wanted = {"buckets": 0, "dummies_per_user": 0.0, **fields}
    wanted |= {"n_min": _PEOPLE, "target_size": _PEOPLE, "deadline": int(time.time()) + _DAY}
    async with cluster.operator() as operator:
        tokens = await cluster.create_token_key(wanted["deadline"])
        asked = draft(cluster.shuffler_key, tokens=tokens, **wanted)
        return (await operator.publish_task(asked))[0]


async def _answer(cluster: _WebCluster, signed: list[SignedTask], folder: Path) -> Any:
    listed = cluster.credentials.read_text(encoding="utf-8")
    plan = {
        "shuffler": f"http://{cluster.http['shuffler']}",
        "issuer": f"http://{cluster.http['issuer']}",
        "analyzerIdentity": cluster.identity.strip(),
        "shufflerIdentity": cluster.shuffler_identity.strip(),
        "issuerIdentity": cluster.published("issuer", "identity.pub").strip(),
        "witnesses": cluster._witness_keys,
        "quorum": 2,
        "tasks": [
            {"digest": one.digest().hex(), "values": values}
            for one, (_, values) in zip(signed, _TASKS, strict=True)
        ],
        "credentials": [line.split()[-1] for line in listed.splitlines()],
        "atOnce": 48,
        "seed": _SEED,
        "patienceSeconds": _PATIENCE,
    }
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    node("build.mjs", "--tests", folder)
    process = await asyncio.create_subprocess_exec(
        *(tool("node"), folder / "people.mjs", folder / "plan.json"),
        cwd=WEB,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert 0 == process.returncode
    return json.loads(output)


def _figures(estimate: Estimate) -> NDArray[np.float64]:
    if isinstance(estimate, ShareTables):
        return np.concatenate([table.shares for table in estimate.tables])
    if isinstance(estimate, Means):
        return estimate.means
    assert isinstance(estimate, Histogram)
    return estimate.frequencies


def _estimate(task: Task, result: Result, sent: dict[str, int]) -> Estimate:
    """Estimate from the reports that the devices sent, as the analyzer does."""
    mechanism = randomizer_of(task)
    raw = b"".join(bytes.fromhex(report) * times for report, times in sent.items())
    reports = np.frombuffer(raw, dtype=mechanism.report_dtype)
    cells = mechanism.tally(reports[~is_null(reports)])
    return estimate_result(task, mechanism, cells, mixture_of_result(task, result))


@pytest.mark.slow
async def test_every_answer_of_a_web_device_is_counted_once_under_kills(tmp_path: Path) -> None:
    """
    16,000 answers to eight protocols: the results are those of the reports that were sent.

    With the shuffler's dummies within seven standard errors; more with probability 1e-11.
    """
    install()
    async with _WebCluster(tmp_path, _PEOPLE) as cluster:
        signed = [await _publish(cluster, fields) for fields, _ in _TASKS]
        done, moments = asyncio.Event(), random.Random(_SEED)  # noqa: S311  # no secret
        killing = asyncio.create_task(cluster.kill(moments, done))
        try:
            answered = await _answer(cluster, signed, tmp_path)
        finally:
            done.set()
            await killing
        assert answered["repeats"] > 0
        for one, told in zip(signed, answered["tasks"], strict=True):
            async with cluster.operator() as operator, asyncio.timeout(_PATIENCE):
                result = await operator.wait_for_result(one.digest())

            assert (_PEOPLE, _PEOPLE) == (told["arrived"], result.n_users)
            task = Task.from_bytes(one.task_bytes)
            added = result.n_reports - sum(told["sent"].values())
            assert (added > 0) == (task.shuffler.most_dummies > 0)
            assert 0 == sum(result.refused.values())
            found, expected = result.estimate, _estimate(task, result, told["sent"])
            off = np.abs(_figures(found) - _figures(expected))
            noise = found.standard_errors if isinstance(found, Means) else 0.0
            assert (off <= 1e-9 + 7 * noise * (added > 0)).all()
