"""A device's check of a task's claim: every protocol, and the dearest tasks, at every size."""

import dataclasses
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.accounting.claims import delta_at_claim
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey, report_context
from shuffledp.common.crypto.hpke_pool import open_each, seal_each
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.uniform_dummies import BinomialDummies
from shuffledp.common.task_digest import TaskDigest
from tests.benchmarks.conftest import Best, Line, best_of
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.protocol_tasks import protocol_task

_MOST_REPORTS: Final = 1.5 / 45e-6
"""A check may take as long as opening this many reports: 1.5 s where one takes 45 µs."""
_MOST_MB: Final = 100
_SIZES: Final = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
_EPSILONS: Final = (1e-4, 0.003, 0.01, 0.05, 0.2, 1.0)
_OPENED: Final = 4000
_REPORT_BYTES: Final = 12


def _clusters(
    *rooms: tuple[int, int, int], types: tuple[tuple[int, int, int], ...]
) -> ClusterDummies:
    return ClusterDummies(negative_weight=20, trials=1, clusters=types, rooms=rooms)


def _binomial() -> BinomialDummies:
    return BinomialDummies(per_user=0, trials=1000, extra_weight=2**28)


_WIDE: Final = _clusters(
    (25, 2**30, 3 * 2**30), (63, 2**31, 2**31), (90, 2**29, 2**31),
    types=((20, 1, 30), (1, 0, 9), (0, 1, 9), (60, 3, 5), (5, 2, 5), (80, 4, 1)),
)  # fmt: skip
_NARROW: Final = _clusters((2, 2**32, 19 * 2**32 // 20), types=((1, 1, 30), (1, 0, 30), (0, 1, 40)))
_GEOMETRIC: Final = ShufflerSpec(
    noise=GeometricNoise(peak=500, left_weight=1047233814, right_weight=1047233814, most=2000)
)


def _hierarchy() -> Task:
    edges = EdgesSpec(low=0.0, high=1.0, buckets=2**16)
    return protocol_task(
        "hierarchy", buckets=2, edges=edges, dummies_per_user=900.3, n_min=10**7, target_size=10**9
    )


DEAR: Final[dict[str, Callable[[], Task]]] = {
    "signed, wide clusters": partial(
        protocol_task, "signed", dummies=_WIDE, n_min=10**5, target_size=10**9, delta=0.01
    ),
    "signed, many clusters": partial(
        protocol_task, "signed", dummies=_NARROW, n_min=10**5, target_size=10**9, delta=0.01
    ),
    "hybrid, wide noise": partial(protocol_task, "hybrid", shuffler=_GEOMETRIC),
    "od-hp, binomial": partial(protocol_task, "od-hp", dummies=_binomial()),
    "hierarchy of 16 levels": _hierarchy,
}
"""The dearest valid task of each costly kind."""


def _task(name: str) -> Task:
    if name in DEAR:
        return DEAR[name]()
    return (kind_task if name in OF_OTHER_KINDS else protocol_task)(name)


def _cost(task_bytes: bytes) -> tuple[float, float]:
    """Return the seconds and megabytes of a check. Run in a new process, on Linux."""
    task = Task.from_bytes(task_bytes)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
    before, started = _megabytes("VmRSS"), time.process_time()
    delta_at_claim(task)
    return time.process_time() - started, _megabytes("VmHWM") - before


def _megabytes(field: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = [line for line in text.splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) / 1024


def _opening() -> float:
    """Return the seconds that it takes to open a report."""
    context, key = report_context(TaskDigest(bytes(32))), HpkePrivateKey.generate(DEFAULT_SUITE)
    plain = bytes(_OPENED * _REPORT_BYTES)
    sealed = seal_each(key.public_key().sealer(context), plain, _REPORT_BYTES)
    opening = partial(open_each, key, sealed, len(sealed) // _OPENED, context)
    return best_of(3, opening, time.process_time) / _OPENED


@pytest.mark.parametrize("name", [*PROTOCOLS, *DEAR])
@pytest.mark.benchmark(timer=time.process_time)
def test_a_claims_check(name: str, best: Best, line: Line) -> None:
    """
    Each check has a new process, as a device's first one does.

    The claims of ε are tried around the least that each size allows, where a check is dearest.
    """
    base, opening = _task(name), _opening()
    found: list[tuple[float, float]] = []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # a device has loaded its code before
    with context.Pool(1, maxtasksperchild=1) as pool:

        def check(n_min: int, epsilon: float) -> tuple[float, float]:
            task = dataclasses.replace(
                base,
                n_min=n_min,
                target_size=max(n_min, base.target_size),
                central_epsilon=min(epsilon, base.local_epsilon)
                if base.amplified
                else base.local_epsilon,
                budget_epsilon=100.0,
            )
            cost: tuple[float, float] = pool.apply(_cost, (task.to_bytes(),))
            return cost

        def check_all() -> None:
            epsilons = _EPSILONS if base.amplified else _EPSILONS[:1]
            found.extend(check(n_min, epsilon) for n_min in _SIZES for epsilon in epsilons)

        best(1, check_all)
    seconds, megabytes = max(each[0] for each in found), max(each[1] for each in found)
    line(
        "checking a claim",
        task=name,
        cpu_s=seconds,
        mb=megabytes,
        reports_opened_meanwhile=seconds / opening,
        share_of_the_limit=seconds / opening / _MOST_REPORTS,
    )
    assert seconds / opening <= _MOST_REPORTS
    assert megabytes <= _MOST_MB
