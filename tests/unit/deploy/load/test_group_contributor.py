"""Simulated people, drawn as devices draw."""

import zlib

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.crypto.hpke import envelope_context, report_context, split_every
from shuffledp.common.errors import ValueRangeError
from shuffledp.common.mechanisms.base import is_null, null_reports
from shuffledp.common.mechanisms.registry import mechanism_of, randomizer_of
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.protocols import protocols_of
from shuffledp.common.task.kinds import ITEM_KINDS
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.load.users import GroupContributor
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.user_agent.contribution import Contributor
from tests.support.kind_tasks import VALUES, kind_task
from tests.support.protocol_tasks import ANALYZER_KEY, SHUFFLER_KEY, protocol_task

_PEOPLE = 150
_ITEM = 1
_DIGEST = TaskDigest(bytes(32))
_ITEM_PROTOCOLS = ("murs", "mixdump", "od-hp", "aue")
_HIERARCHY = pytest.param("hierarchy", marks=pytest.mark.slow)
_OTHERS = ("rappor", *(protocols_of(kind)[0] for kind in ("mean", "vector", "key-value")))


def _opened(task: Task, envelopes: list[bytes]) -> NDArray[np.void]:
    """Open all reports, by user and place; null where none was sent. Shape (users, most)."""
    dtype = randomizer_of(task).report_dtype
    found = (
        null_reports(len(envelopes) * task.lengths[-1], dtype).reshape(len(envelopes), -1).copy()
    )
    for row, envelope in zip(found, envelopes, strict=True):
        _, content = split_submission(SHUFFLER_KEY.open(envelope, envelope_context(_DIGEST)))
        sealed = split_every(content, task.sealed_report_bytes)
        opened = [ANALYZER_KEY.open(report, report_context(_DIGEST)) for report in sealed]
        row[: len(opened)] = np.frombuffer(b"".join(opened), dtype=dtype)
    return found


def _classes(task: Task, reports: NDArray[np.void]) -> NDArray[np.int64]:
    """Sort reports into classes: null, else support of the one value, or a hash of the bytes."""
    flat = reports.ravel()
    if task.kind == "categorical":
        found = 1 + mechanism_of(task).supports(flat, _ITEM).astype(np.int64)
    else:
        found = np.array([1 + zlib.crc32(report.tobytes()) % 8 for report in flat])
    found[is_null(flat)] = 0
    return found.reshape(reports.shape)


def _p_value(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Compare two samples of classes; those seen fewer than 20 times are taken together."""
    top = 1 + int(max(one.max(), other.max()))
    table = np.array([np.bincount(sample, minlength=top) for sample in (one, other)])
    rare = table.sum(axis=0) < 20
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return float(stats.chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0


@pytest.mark.parametrize("name", [*_ITEM_PROTOCOLS, _HIERARCHY, *_OTHERS])
def test_groups_are_drawn_as_devices_draw(name: str) -> None:
    """Reports agree at each place, and over each person's reports together."""
    # Seed 3; some 50 comparisons at 1e-8 each fail by chance with probability below 1e-6.
    task = kind_task(name) if name in _OTHERS else protocol_task(name)
    value = value_of(task, _ITEM) if task.kind in ITEM_KINDS else VALUES[task.kind]
    rng = np.random.default_rng(3)
    device, group = Contributor(task, _DIGEST), GroupContributor(task, _DIGEST)
    envelopes = [device.prepare(value, rng).envelope for _ in range(_PEOPLE)]
    alone = _classes(task, _opened(task, envelopes))
    together = _classes(
        task,
        _opened(
            task,
            group.prepare_group([value] * _PEOPLE, [rng.bytes(16) for _ in range(_PEOPLE)], rng),
        ),
    )

    for place in range(task.lengths[-1]):
        assert _p_value(alone[:, place], together[:, place]) > 1e-8
    assert _p_value((alone == 0).sum(axis=1), (together == 0).sum(axis=1)) > 1e-8
    assert _p_value(alone.sum(axis=1), together.sum(axis=1)) > 1e-8


def test_a_group_keeps_each_persons_value_and_id() -> None:
    """Reports without noise come in the order of people; without people there are none."""
    task = protocol_task("puredump")
    group, rng = GroupContributor(task, _DIGEST), np.random.default_rng(1)
    values, ids = [5, 0, 29], [bytes([user]) * 16 for user in range(3)]
    envelopes = group.prepare_group(values, ids, rng)
    supported = mechanism_of(task).supports

    for value, reports in zip(values, _opened(task, envelopes), strict=True):
        assert supported(reports[~is_null(reports)], value).any()
    plaintexts = [SHUFFLER_KEY.open(one, envelope_context(_DIGEST)) for one in envelopes]
    assert ids == [split_submission(one)[0] for one in plaintexts]
    assert [] == group.prepare_group([], [], rng)
    with pytest.raises(ValueRangeError):
        group.prepare_group([1, 30], ids[:2], rng)
