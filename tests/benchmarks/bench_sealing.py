"""Sealing and opening: every suite, and the analyzer's opening."""

import asyncio
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from shuffledp.audit.harness.party_cores import InlineExecutor
from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.hpke_pool import HpkePool, open_each, seal_each
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.runtime.parts.executor import LocalExecutor
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task.task import SUBMISSION_ID_BYTES
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.load.users import GroupContributor
from shuffledp.user_agent.contribution import Contributor
from tests.benchmarks.conftest import Best, Line, best_of
from tests.support import count_jobs
from tests.support.count_jobs import job_over
from tests.support.part_metrics import part_metrics
from tests.support.relays import CHAIN, RELAY_KEY, Relay, sealed_layers
from tests.support.tasks import published

_REPORT_BYTES: Final = 12
_SEALS: Final = 5_000
_OPENED: Final = 40_000
_LAYERS: Final = 20_000
_PEOPLE: Final = 1000


def _seconds_of_suite(suite: str) -> tuple[float, float]:
    """Seconds to seal and to open."""
    context, plain = hpke.report_context(TaskDigest(bytes(32))), bytes(_SEALS * _REPORT_BYTES)
    key = hpke.HpkePrivateKey.generate(suite)
    sealing = partial(seal_each, key.public_key().sealer(context), plain, _REPORT_BYTES)
    sealed = sealing()
    opening = partial(open_each, key, sealed, len(sealed) // _SEALS, context)
    assert plain == opening().plaintexts
    return best_of(3, sealing), best_of(3, opening)


@pytest.mark.parametrize("suite", hpke.SUITES)
def test_suites(suite: str, best: Best, line: Line) -> None:
    """One core, as a ratio of the default suite's rate of the same moment."""
    default = _seconds_of_suite(hpke.DEFAULT_SUITE)
    found: list[tuple[float, float]] = []
    best(1, lambda: found.append(_seconds_of_suite(suite)))
    [(sealing, opening)] = found
    line(
        "suites",
        suite=suite,
        seals_per_second=_SEALS / sealing,
        opens_per_second=_SEALS / opening,
        sealing_over_default=default[0] / sealing,
        opening_over_default=default[1] / opening,
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_opening(processes: int, best: Best, line: Line, tmp_path: Path) -> None:
    """The analyzer's stages beside a bare loop on one core, and raw X25519 exchanges."""
    case = published(domain_size=915, buckets=53)
    digest, mechanism = case.signed.digest(), mechanism_of(case.task)
    seal = case.analyzer_key.public_key().sealer(hpke.report_context(digest))
    sealed = [seal(r.tobytes()) for r in mechanism.dummies(_OPENED, np.random.default_rng(1))]
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(case.analyzer_key.private_bytes())
    public, info = private.public_key(), hpke.report_context(digest)
    pool, job = HpkePool(processes), job_over(tmp_path, case, sealed)

    def count() -> None:
        executor = LocalExecutor(pool=pool, metrics=part_metrics())
        counts = asyncio.run(count_jobs.count(job, executor))
        assert _OPENED == counts.counted

    count()  # starts the workers
    exchange = best_of(3, lambda: [private.exchange(public) for _ in range(_OPENED // 4)])
    bare = best_of(3, lambda: [suite.decrypt(one, private, info) for one in sealed])
    counted = best(3, count)
    pool.close()
    line(
        "opening",
        processes=processes,
        reports=_OPENED,
        bare_decrypts_per_second=_OPENED / bare,
        rate_over_bare_loop=bare / counted,
        rate_over_raw_x25519=4 * exchange / counted,
    )


class _TimedRelay(Relay):
    """A relay in one process, with each stage's processor seconds, and the most bytes of blocks."""

    def open_executor(self) -> InlineExecutor:
        """Return an executor that measures."""
        relay = self
        self.seconds, self.stored = defaultdict[str, float](float), 0

        class Timed(InlineExecutor):
            async def run(self, stage: Any, job: Any, parts: Iterable[int]) -> list[Any]:
                started = time.process_time()
                results = await super().run(stage, job, parts)
                relay.seconds[stage.__qualname__] += time.process_time() - started
                files = [each for each in relay.path.glob("blocks/*/**/*") if each.is_file()]
                relay.stored = max(relay.stored, sum(each.stat().st_size for each in files))
                return results

        return Timed()


async def _relayed(folder: Path, layers: list[bytes]) -> _TimedRelay:
    """Let a relay take, open, permute and deliver layers."""
    relay = _TimedRelay(folder)
    await relay.start()
    await relay.deliver(layers, len(layers) - 500)
    await relay.deliveries.advance()
    relay.store.close()
    return relay


def test_a_relay_opens_at_little_more_than_bare_decryptions(
    best: Best, line: Line, tmp_path: Path
) -> None:
    """One core; a layer more at the device too, beside what it seals with one shuffler."""
    digest, context = CHAIN.signed.digest(), hpke.layer_context(CHAIN.signed.digest(), 1)
    layers = sealed_layers(number % 20 for number in range(_LAYERS))
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(RELAY_KEY.private_bytes())
    clock, numbers = time.process_time, itertools.count()
    bare, runs = [], list[_TimedRelay]()

    def relayed() -> None:
        bare.append(
            best_of(1, lambda: [suite.decrypt(one, private, context) for one in layers], clock)
        )
        runs.append(asyncio.run(_relayed(tmp_path / str(next(numbers)), layers)))

    best(3, relayed)
    opened = min(run.seconds["LayerJob.open"] for run in runs)
    seal, plain = report_sealer(CHAIN.task, digest), bytes(CHAIN.task.mechanism.report_bytes)
    alone = report_sealer(CHAIN.task, digest, 2)
    times = [
        best_of(5, partial(seal_each, each, plain * _SEALS, len(plain)), clock)
        for each in (seal, alone)
    ]
    line(
        "a layer",
        layers=_LAYERS,
        opening_over_bare_decrypts=opened / min(bare),
        all_of_the_relays_work_over_bare_decrypts=min(sum(run.seconds.values()) for run in runs)
        / min(bare),
        relay_blocks=max(run.stored for run in runs) / _LAYERS,
        seal_us=1e6 * times[1] / _SEALS,
        seal_and_layer_us=1e6 * times[0] / _SEALS,
        seal_and_layer_over_seal=times[0] / times[1],
    )
    assert opened <= 1.3 * min(bare)


_CLUSTERS: Final = {
    "protocol": "signed",
    "local_epsilon": math.inf,
    "dummies_per_user": 0,
    "dummies": ClusterDummies(
        negative_weight=3,
        trials=1,
        clusters=((3, 1, 20), (1, 0, 20), (0, 1, 5), (9, 3, 3)),
        rooms=((4, 2**29, 3 * 2**30), (12, 2**27, 3 * 2**30)),
    ),
    "n_min": 602_325,
    "target_size": 602_325,
}
"""1.9 reports on average, 13 at most."""


@pytest.mark.parametrize("changes", [{"buckets": 53, "dummies_per_user": 1}, _CLUSTERS])
@pytest.mark.benchmark(timer=time.process_time)
def test_preparing_many_costs_little_more_than_their_seals(
    changes: dict[str, Any], best: Best, line: Line
) -> None:
    """
    Together at most 1.1 times the sealing of reports and envelopes, in processor time.

    One by one, with clusters, at most 1.15 times.
    """
    case = published(**{"domain_size": 915, "buckets": 0} | changes)
    task, digest, rng = case.task, case.signed.digest(), np.random.default_rng(1)
    values = rng.integers(0, task.domain_size, _PEOPLE).tolist()
    group, device = GroupContributor(task, digest), Contributor(task, digest)
    report = hpke.HpkePublicKey(task.suite, task.analyzer_key).sealer(hpke.report_context(digest))
    envelope = hpke.HpkePublicKey(task.suite, task.shuffler_key).sealer(
        hpke.envelope_context(digest)
    )
    plain = bytes(task.mechanism.report_bytes)
    clock, counts = time.process_time, list[int]()
    each = dict(zip(task.envelope_sizes, task.lengths, strict=True))

    def prepare() -> None:
        sent = [len(device.prepare(value, rng).envelope) for value in values]
        counts[:] = [each[size] for size in sent]

    def seals() -> None:
        for count in counts:
            for _ in range(count):
                report(plain)
            envelope(bytes(SUBMISSION_ID_BYTES + count * task.sealed_report_bytes))

    prepare()
    # Each preparation is compared with the seals of the numbers that it drew.
    alone = min(best_of(1, prepare, clock) / best_of(1, seals, clock) for _ in range(9))
    least = best_of(7, seals, clock)
    ids = [rng.bytes(SUBMISSION_ID_BYTES) for _ in values]
    together = best(7, lambda: group.prepare_group(values, ids, rng))
    least = min(least, best_of(7, seals, clock))  # of the same moment
    line(
        "preparing people",
        protocol=task.protocol,
        together_us=1e6 * together / _PEOPLE,
        seals_us=1e6 * least / _PEOPLE,
        one_by_one_over_seals=alone,
        together_over_seals=together / least,
    )
    assert together <= 1.1 * least
    assert task.protocol != "signed" or alone <= 1.15
