"""Batches of tasks whose shuffler drops reports and adds dummies, from submission to result."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from common.crypto.hpke import report_context
from common.mechanisms.base import Reports
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchState
from common.task.dummy_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import PublishedTask, published

_COINS: Final = ShufflerSpec(law="binomial", trials=60, most=60)
_FLANKS: Final = ShufflerSpec(
    law="geometric",
    peak=12,
    left_weight=RATIO_SUM * 3 // 4,
    right_weight=RATIO_SUM // 2,
    most=60,
)
_SAMPLED: Final = ShufflerSpec(law="binomial", trials=40, most=40, keep_weight=KEEP_SUM // 2)


def _case(protocol: str, spec: ShufflerSpec) -> PublishedTask:
    fields: dict[str, Any] = {
        "protocol": protocol,
        "local_epsilon": math.inf,
        "dummies_per_user": 0,
        "buckets": 0,
        "shuffler": spec,
        "n_min": 3,
        "target_size": 8,
        "domain_size": 5,
        "delta": 1e-2,
    }
    return published(**fields)


_CASES: Final = {
    "coins": _case("sbin", _COINS),
    "flanks": _case("sageo", _FLANKS),
    "sampled": _case("sbin", _SAMPLED),
}


@pytest.fixture(params=list(_CASES))
async def shuffler(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A started shuffler of each task."""
    started = Shuffler(tmp_path, case=_CASES[request.param])
    await started.start()
    yield started
    started.spool.close()


def _opened(case: PublishedTask, blob: bytes) -> Reports:
    """What the analyzer's key makes of a batch; it fails if a report does not open."""
    size, context = case.task.sealed_report_bytes, report_context(case.signed.digest())
    plain = [
        case.analyzer_key.open(blob[start : start + size], context)
        for start in range(0, len(blob), size)
    ]
    return np.frombuffer(b"".join(plain), dtype=mechanism_of(case.task).report_dtype)


async def test_a_batch_is_the_kept_reports_and_the_dummies(shuffler: Shuffler) -> None:
    """All of one length, all opening; eight users hold item 2, and dummies stay in their law."""
    digest, task = shuffler.case.signed.digest(), shuffler.case.task
    envelopes = [shuffler.envelope(2) for _ in range(8)]
    await shuffler.collection.submit_bulk(digest, envelopes)
    await shuffler.deliveries.advance()
    [(manifest, blob)] = shuffler.analyzer.delivered
    reports = _opened(shuffler.case, blob)
    counts = np.bincount(reports["item"].astype(np.int64), minlength=5)
    kept_for_certain = 8 if task.shuffler.kept == 1 else 0

    assert 8 == manifest.n_users
    assert len(reports) == manifest.n_reports
    assert manifest.n_reports * task.sealed_report_bytes == len(blob)
    assert mechanism_of(task).valid(reports).all()
    assert (counts <= task.shuffler.most + 8 * (np.arange(5) == 2)).all()
    assert counts[2] >= kept_for_certain
    assert counts.sum() > 8
    least, most = task.batch_reports(8)
    assert least <= manifest.n_reports <= most
    size = task.sealed_report_bytes
    parts = [blob[start : start + size] for start in range(0, len(blob), size)]
    assert 1 == max(Counter(parts).values())


async def test_a_restart_before_delivery_draws_nothing_again(shuffler: Shuffler) -> None:
    """The saved batch is delivered byte for byte: two draws of dummies could be averaged."""
    await shuffler.submit(8)
    shuffler.analyzer.lose_answers = True
    await shuffler.deliveries.advance()
    assert BatchState.PERMUTED is await shuffler.state()
    await shuffler.restart()
    shuffler.analyzer.lose_answers = False
    await shuffler.deliveries.advance()
    first, second = shuffler.analyzer.delivered

    assert first == second
    assert BatchState.ERASED is await shuffler.state()


async def test_dummies_and_reports_are_mixed(tmp_path: Path) -> None:
    """
    The mean rank of users' reports, and dummies of their item, is a half.

    Thirty batches of eight users who hold item 2, within six standard deviations: the shuffler's
    seed is 1, fails by chance with probability below 1e-8.
    """
    ranks: list[float] = []
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        one = Shuffler(folder, case=_CASES["flanks"])
        one.rng = np.random.default_rng([1, number])
        await one.start()
        await one.collection.submit_bulk(
            one.case.signed.digest(), [one.envelope(2) for _ in range(8)]
        )
        await one.deliveries.advance()
        [(_, blob)] = one.analyzer.delivered
        items = _opened(one.case, blob)["item"]
        ranks.extend((np.flatnonzero(items == 2) + 0.5) / len(items))
        one.spool.close()
        await asyncio.sleep(0)

    assert abs(np.mean(ranks) - 0.5) < 6 / np.sqrt(12 * len(ranks))
