import dataclasses
from pathlib import Path

import numpy as np
import pytest

from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, report_context
from shuffledp.common.errors import ConflictError, UnusableBatchError
from shuffledp.common.mechanisms.discovery.prefix_hashing import elements_of
from shuffledp.common.mechanisms.registry import prefix_hashing_of
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.result import FoundValues
from shuffledp.common.task.task import Task
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.kind_tasks import kind_draft_fields
from tests.support.ledger_entries import releases


def _files(analyzer: AnalyzerCore) -> list[Path]:
    return sorted(path for path in analyzer.path.rglob("*") if path.is_file())


async def test_a_batch_becomes_one_result_however_often_it_is_delivered(
    analyzer: AnalyzerCore,
) -> None:
    """One ledger entry stays; staged reports are deleted from all files, and none is added."""
    before, sealed = _files(analyzer), analyzer.sealed(50)
    for _ in range(3):
        await analyzer.deliver(50, sealed)
    result = await analyzer.result()
    [entry] = releases(await analyzer.store.ledger(0))

    assert (50, 100, 50) == (result.n_users, result.n_reports, result.n_dummies)
    assert guarantees(analyzer.task, 50, 0) == result.guarantees
    assert abs(result.histogram.frequencies[0] - 1) < 5 * result.histogram.standard_errors[0]
    assert (50, result.guarantees[0].epsilon) == (entry.n_users, entry.epsilon)
    assert analyzer.task.delta == entry.delta
    assert before == _files(analyzer)
    files = b"".join(file.read_bytes() for file in before)
    assert not [report for report in sealed if report[:32] in files]


async def test_a_task_has_one_batch_and_a_batch_id_one_task(analyzer: AnalyzerCore) -> None:
    """Another batch, another manifest, or another task's batch under the id is refused."""
    first, second = analyzer.signed, await analyzer.publish()
    await analyzer.deliver_parts(analyzer.manifest(3, signed=first), analyzer.sealed(3, first))
    for users, batch, signed, message in (
        (3, BatchId(b"o" * 16), first, "one task, one release"),
        (4, BATCH, first, "one task, one release"),
        (3, BATCH, second, "for another task"),
    ):
        manifest = analyzer.manifest(users, batch=batch, signed=signed)
        with pytest.raises(ConflictError, match=message):
            await analyzer.deliver_parts(manifest, analyzer.sealed(users, signed))
    await analyzer.settle()


async def test_an_unreadable_batch_is_unusable_with_a_reason(analyzer: AnalyzerCore) -> None:
    """The task takes no other batch."""
    garbage = [bytes([number]) * 60 for number in range(6)]
    await analyzer.deliver(3, garbage)

    with pytest.raises(UnusableBatchError, match="none of the batch's 6 reports"):
        await analyzer.result()
    other = analyzer.manifest(3, batch=BatchId(b"o" * 16))
    with pytest.raises(ConflictError):
        await analyzer.deliver_parts(other, analyzer.sealed(3))


async def test_no_reports_are_kept_that_nothing_reads_again(analyzer: AnalyzerCore) -> None:
    """A result of an open dictionary is stored without the reports that it was computed from."""
    fields = {"n_min": 400, "target_size": 400, "local_epsilon": 8.0}
    signed = await analyzer.publish(**kind_draft_fields("discover", **fields))
    mechanism = prefix_hashing_of(Task.from_bytes(signed.task_bytes))
    values = np.tile(elements_of(b"rhubar", 6), (400, 1))
    reports = mechanism.randomize(values, np.random.default_rng(7))
    seal = analyzer.keys.reports.public_key(DEFAULT_SUITE).sealer(report_context(signed.digest()))
    manifest = dataclasses.replace(analyzer.manifest(400, signed=signed), n_reports=400)
    await analyzer.deliver_parts(manifest, [seal(report.tobytes()) for report in reports])
    await analyzer.settle()
    result = await analyzer.releases.result(signed.digest())
    files = b"".join(file.read_bytes() for file in _files(analyzer))

    assert isinstance(result.estimate, FoundValues)
    assert (b"rhubar",) == result.estimate.values
    assert not [report for report in reports if report.tobytes() in files]
