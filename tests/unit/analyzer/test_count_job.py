import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.analyzer.count_job import CountJob
from shuffledp.audit.harness.party_cores import InlineExecutor
from shuffledp.common.crypto.hpke import report_context
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.errors import DamagedStorageError, UnusableBatchError
from shuffledp.common.mechanisms.base import null_reports
from shuffledp.common.mechanisms.registry import mechanism_of, prefix_hashing_of
from shuffledp.common.messages.inclusion_proof import leaf
from tests.support.count_jobs import count, divide_finely, job_over, merge
from tests.support.dying_workers import DyingExecutor
from tests.support.kind_tasks import kind_draft_fields
from tests.support.leaves import GrownTree
from tests.support.part_metrics import part_metrics
from tests.support.tasks import published

_CASE: Final = published()
_MECHANISM: Final = mechanism_of(_CASE.task)
_STAGES: Final[dict[str, Callable[[CountJob], int]]] = {
    "split": lambda job: job.n_parts,
    "merge": lambda job: job.n_ranges,
    "hash_buckets": lambda job: job.n_subtrees,
    "match": lambda job: job.n_parts,
    "count": lambda job: job.n_slices,
}
"""Every stage in order, with its number of parts."""


@pytest.fixture
def _fine(monkeypatch: pytest.MonkeyPatch) -> None:
    divide_finely(monkeypatch)


def _batch() -> list[bytes]:
    """Return a batch with repeats, padding, unreadable and malformed reports."""
    reports = _MECHANISM.dummies(140, np.random.default_rng(5))
    reports["bucket"][1] = 13
    seal = _CASE.analyzer_key.public_key().sealer(report_context(_CASE.signed.digest()))
    padding = null_reports(4, _MECHANISM.report_dtype)
    sealed = [seal(report.tobytes()) for report in np.concatenate([reports, padding])]
    garbage = [number.to_bytes(60) for number in range(6)]
    order = np.random.default_rng(6).permutation(170)
    whole = [*sealed, *garbage, *sealed[:20]]
    return [whole[place] for place in order]


def _planted(sealed: list[bytes]) -> bytes:
    """Return the leaves of two sentinels: one report arrived once, one twice, one never."""
    twice = next(one for one in sealed if sealed.count(one) == 2)
    once = next(one for one in sealed if sealed.count(one) == 1 and any(one[:50]))
    return b"".join(map(leaf, (twice, once, bytes(60 * 2))))


@pytest.mark.parametrize("n_parts", [1, 3, 40])
@pytest.mark.parametrize("fine", [False, True])
async def test_the_tree_is_that_over_all_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_parts: int, *, fine: bool
) -> None:
    """Whatever the parts and ranges, empty ones included; every repeat is found."""
    if fine:
        divide_finely(monkeypatch)
    sealed = _batch()
    job, tree, n_repeated = await merge(
        job_over(tmp_path, _CASE, sealed, n_parts), InlineExecutor()
    )

    expected = GrownTree([leaf(report) for report in sealed])
    assert (fine, fine) == (job.n_ranges > 1, job.n_subtrees > 1)
    assert (150, 20) == (tree.n_leaves, n_repeated)
    assert (expected.tree.bits, expected.root) == (tree.bits, tree.root)


@pytest.mark.usefixtures("_fine")
async def test_a_batch_of_copies_has_fewer_buckets_than_ranges(tmp_path: Path) -> None:
    """Ranges are joined to buckets, and every copy is a repeat."""
    sealed = [bytes([number]) * 60 for number in range(5)] * 40
    job, tree, n_repeated = await merge(job_over(tmp_path, _CASE, sealed), InlineExecutor())

    expected = GrownTree([leaf(report) for report in sealed])
    assert (16, 2, 195) == (job.n_ranges, job.n_subtrees, n_repeated)
    assert expected.root == tree.root


def test_copies_are_dropped_before_they_meet_in_one_range(tmp_path: Path) -> None:
    """A worker that merges the range of a report holds at most one copy from each part."""
    sealed = [bytes(60)] * 1000 + [bytes([number]) * 60 for number in range(1, 9)]
    job = job_over(tmp_path, _CASE, sealed, n_parts=2)
    dropped = [job.split(part) for part in range(job.n_parts)]
    blocks = list((tmp_path / job.folder / "split").iterdir())

    assert 999 - 1 == sum(dropped)
    assert sum(path.stat().st_size for path in blocks) < 10 * 92 + 100 * len(blocks)


def test_an_earlier_block_in_a_parts_place_is_not_counted(tmp_path: Path) -> None:
    """It opens under the same key and name, but the delivery recorded another hash."""
    job = job_over(tmp_path, _CASE, _batch())
    job.sealed_blocks().put("arrived/1", bytes(60))
    with pytest.raises(UnusableBatchError, match="part 1"):
        job.split(1)


@pytest.mark.usefixtures("_fine")
async def test_sentinels_reports_are_not_counted(tmp_path: Path) -> None:
    """They are dropped with their copies, which count as repeats; no other report is."""
    sealed = _batch()
    known = _planted(sealed)
    without = [report for report in sealed if leaf(report) not in known]
    counts = await count(job_over(tmp_path / "a", _CASE, sealed, sentinel_leaves=known))
    expected = await count(job_over(tmp_path / "b", _CASE, without))

    assert len(sealed) - 3 == len(without)
    np.testing.assert_array_equal(expected.cells, counts.cells)
    assert {**expected.refused, "repeated": 20} == counts.refused
    assert (expected.counted, expected.null) == (counts.counted, counts.null)


class _Twice(InlineExecutor):
    """Runs every part of a stage twice, and compares all blocks afterwards."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def run(self, stage: Any, job: Any, parts: Any) -> list[Any]:
        """Run a stage; results and blocks must be the same both times."""
        first = await super().run(stage, job, parts)
        written = _plaintexts(job, self._path)
        assert first[::-1] == await super().run(stage, job, parts[::-1])
        assert written == _plaintexts(job, self._path)
        return first


def _plaintexts(job: CountJob, path: Path) -> dict[str, bytes]:
    """Open all blocks of a batch."""
    root = path / job.folder
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    return {name: job.sealed_blocks().get(name) for name in names}


@pytest.mark.usefixtures("_fine")
async def test_a_part_that_is_computed_again_writes_the_same_blocks(tmp_path: Path) -> None:
    """Bit for bit, under the seal, in every stage."""
    sealed, executor = _batch(), _Twice(tmp_path)
    job = job_over(tmp_path, _CASE, sealed, sentinel_leaves=_planted(sealed))
    counts = await count(job, executor)
    matches = await executor.run(CountJob.match, job, range(job.n_parts))

    assert set(_STAGES) == set(executor.parts)
    assert 3 == sum(part.n_found for part in matches)
    assert {"repeated": 20, "unreadable": 6, "malformed": 1} == counts.refused


@pytest.mark.parametrize("late", list(_STAGES)[:2])
@pytest.mark.usefixtures("_fine")
async def test_a_part_computed_again_after_others_have_read_it_changes_nothing(
    tmp_path: Path, late: str
) -> None:
    """No report is lost or doubled: an engine computes again what a dead worker had written."""
    sealed, stages = _batch(), list(_STAGES)
    expected = await count(job_over(tmp_path / "alone", _CASE, sealed))
    job = job_over(tmp_path, _CASE, sealed)
    for name, n_parts in _STAGES.items():
        for part in range(n_parts(job)):
            if name == stages[stages.index(late) + 1] and part == n_parts(job) // 2:
                await InlineExecutor().run(getattr(CountJob, late), job, range(_STAGES[late](job)))
            getattr(job, name)(part)

    np.testing.assert_array_equal(expected.cells, job.cells())


@pytest.mark.slow
@pytest.mark.usefixtures("_fine")
async def test_a_worker_that_dies_in_every_stage_changes_nothing(tmp_path: Path) -> None:
    """Its parts are computed again by other workers, over what it had written."""
    sealed, pool = _batch(), HpkePool(1)
    expected = await count(job_over(tmp_path / "alone", _CASE, sealed))
    marks = tmp_path / "died"
    marks.mkdir()
    try:
        executor = DyingExecutor(pool=pool, metrics=part_metrics())
        executor.marks = marks
        job = job_over(tmp_path, _CASE, sealed, sentinel_leaves=_planted(sealed))
        matches = await executor.run(CountJob.match, job, range(job.n_parts))
        counts = await count(replace(job, sentinel_leaves=b""), executor)
    finally:
        pool.close()

    assert set(_STAGES) == {path.name for path in marks.iterdir()}
    assert 3 == sum(part.n_found for part in matches)
    np.testing.assert_array_equal(expected.cells, counts.cells)
    assert expected.refused == counts.refused


@pytest.mark.parametrize("fine", [False, True])
async def test_reports_that_the_estimator_needs_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fine: bool
) -> None:
    """Whatever the slices; without refused reports."""
    if fine:
        divide_finely(monkeypatch)
    case = published(**kind_draft_fields("discover"))
    mechanism = prefix_hashing_of(case.task)
    values = np.full((40, 6), 97, dtype=np.int64)
    reports = mechanism.randomize(values, np.random.default_rng(1))
    seal = case.analyzer_key.public_key().sealer(report_context(case.signed.digest()))
    sealed = [seal(report.tobytes()) for report in reports]
    sealed.append(seal(bytes([9]) * reports.dtype.itemsize))
    counts = await count(job_over(tmp_path, case, sealed[::-1]))

    assert fine == (job_over(tmp_path / "b", case, sealed).n_slices > 1)
    sent, counted = ([row.tobytes() for row in rows] for rows in (reports, counts.cells))
    assert sorted(sent) == sorted(counted)
    assert (40, 1) == (counts.counted, counts.refused["malformed"])


async def test_damage_to_what_arrived_is_told_from_damage_to_what_was_computed(
    tmp_path: Path,
) -> None:
    """Only the parts that arrived cannot be computed again."""
    job = job_over(tmp_path, _CASE, _batch())
    with pytest.raises(DamagedStorageError, match="missing"):
        job.merge(0)
    (tmp_path / job.folder / "arrived" / "1").unlink()
    for stage in (job.split, job.match):
        with pytest.raises(UnusableBatchError, match="part 1 of the batch's 3 staged parts"):
            stage(1)


def test_a_job_hides_its_keys_and_reaches_workers_whole(tmp_path: Path) -> None:
    """Pickled."""
    job = job_over(tmp_path, _CASE, [bytes(60)], sentinel_leaves=b"s" * 32)

    assert job == pickle.loads(pickle.dumps(job))  # noqa: S301  # the test's own
    for secret in (job.key, job.private_key, job.salt, job.sentinel_leaves):
        assert repr(secret)[2:-1] not in repr(job)
    assert len(repr(job)) < 1000
