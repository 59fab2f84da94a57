"""Faults of the permutation."""

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import report_context
from common.task_digest import TaskDigest
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler import shuffle as mixing
from shuffler.dummies import draw_kept
from shuffler.permutation import ExternalShuffle, Reports, permute
from shuffler.shuffle import Mixed, Mixing
from shuffler.storage import group

_CHUNK: Final = 1000
_SMALL_CHUNK: Final = 10
_LARGE: Final = 2**16
_MANY_BUCKETS: Final = 8
_MANY_THROWN: Final = 32_768
_NO_TASK: Final = TaskDigest(bytes(32))


def identity() -> AbstractContextManager[None]:
    """Plant no permutation at all."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        rng.permutation(len(reports))  # drawn, and not used
        return reports.copy()

    return planting.function(permute, other)


def biased() -> AbstractContextManager[None]:
    """Plant the naive shuffle, whose n^n outcomes cannot spread evenly over n! orders."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        order = np.arange(len(reports))
        for place, chosen in enumerate(rng.integers(0, max(1, len(order)), size=len(order))):
            order[[place, chosen]] = order[[chosen, place]]
        return reports[order]

    return planting.function(permute, other)


def within_chunks() -> AbstractContextManager[None]:
    """Plant a shuffler that does not wait for the whole batch."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        starts = range(0, max(1, len(reports)), _CHUNK)
        parts = [reports[start : start + _CHUNK] for start in starts]
        return np.concatenate([part[rng.permutation(len(part))] for part in parts])

    return planting.function(permute, other)


def whole_chunks() -> AbstractContextManager[None]:
    """Plant a shuffler that moves chunks, not reports."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        if len(reports) <= _SMALL_CHUNK:
            return reports[rng.permutation(len(reports))]
        parts = np.array_split(reports, -(-len(reports) // _SMALL_CHUNK))
        rng.permutation(len(reports))  # as many bits as an honest one takes
        return np.concatenate([parts[place] for place in rng.permutation(len(parts))])

    return planting.function(permute, other)


def mersenne_twister() -> AbstractContextManager[None]:
    """Plant a generator that can be predicted from what it drew [MN98]."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        twister = np.random.Generator(np.random.MT19937(int(rng.integers(2**32))))
        return reports[twister.permutation(len(reports))]

    return planting.function(permute, other)


def python_random() -> AbstractContextManager[None]:
    """Plant a generator that no composition root hands in."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        del rng
        order = list(range(len(reports)))
        random.shuffle(order)
        return reports[np.array(order, dtype=np.int64)]

    return planting.function(permute, other)


def large_batches_kept() -> AbstractContextManager[None]:
    """Plant a permutation that leaves large batches as they came."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        order = rng.permutation(len(reports))
        return reports[order] if len(order) < _LARGE else reports.copy()

    return planting.function(permute, other)


def one_report_first() -> AbstractContextManager[None]:
    """Plant an order in which one report of the batch stands first, whatever was drawn."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        order = rng.permutation(len(reports))
        place = np.flatnonzero(order == 0)
        order[: len(place)], order[place] = order[place], order[: len(place)].copy()
        return reports[order]

    return planting.function(permute, other)


def one_order_for_all() -> AbstractContextManager[None]:
    """Plant an order that is drawn once for each number of reports, and used for every batch."""
    drawn = dict[int, NDArray[np.int64]]()

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        order = rng.permutation(len(reports))
        return reports[drawn.setdefault(len(order), order)]

    return planting.function(permute, other)


def many_buckets_kept() -> AbstractContextManager[None]:
    """Plant a shuffle that does not permute its buckets where these are many."""

    def buckets(self: Any, together: int) -> Iterator[Reports]:
        rest = np.empty((0, self._report_bytes), dtype=np.uint8)
        for bucket in self._each_bucket():
            order = self._rng.permutation(len(bucket))
            if self._thrown and self._n_buckets >= _MANY_BUCKETS:
                order.sort()
            rest = np.concatenate([rest, bucket[order]])
        yield from (rest[start : start + together] for start in range(0, len(rest), together))

    return planting.attribute(ExternalShuffle, "permuted", buckets)


class _Sorting:
    """A generator whose bounded integers come sorted, where they are many."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __getattr__(self, name: str) -> Any:  # as the generator's
        return getattr(self._rng, name)

    def integers(self, *args: Any, **fields: Any) -> Any:  # as the generator's
        """Draw bounded integers."""
        drawn = self._rng.integers(*args, **fields)
        return np.sort(drawn) if np.size(drawn) > _MANY_THROWN else drawn


def sorted_throws() -> AbstractContextManager[None]:
    """Plant a shuffle that throws what came first into the first buckets."""
    honest: Any = ExternalShuffle._throw

    def other(self: Any) -> None:
        rng, self._rng = self._rng, _Sorting(self._rng)
        try:
            honest(self)
        finally:
            self._rng = rng

    return planting.attribute(ExternalShuffle, "_throw", other)


def order_of_the_task() -> AbstractContextManager[None]:
    """Plant a batch that is ordered by a generator whose seed everybody knows: the digest."""
    honest = Mixing.mix

    def other(self: Any, groups: Any) -> Mixed:
        rng = self._rng
        rng.permutation(self._n_users * self._task.reports_per_user)  # drawn, and not used
        self._rng = np.random.default_rng(list(self._digest))
        try:
            return honest(self, groups)
        finally:
            self._rng = rng

    return planting.attribute(Mixing, "mix", other)


def dummies_last() -> AbstractContextManager[None]:
    """Plant a shuffler that lays its dummies behind the users' permuted reports."""
    honest_add, honest_order = ExternalShuffle.add, ExternalShuffle.permuted
    honest_dummies: Any = Mixing._dummies
    later = list[Reports]()

    def dummies(self: Any, ends: Any) -> Iterator[Reports]:
        later[:] = honest_dummies(self, ends)
        yield from later

    def add(self: ExternalShuffle, reports: Reports) -> None:
        if any(reports is one for one in later):
            self.n_reports += len(reports)
        else:
            honest_add(self, reports)

    def permuted(self: ExternalShuffle, together: int) -> Iterator[Reports]:
        yield from honest_order(self, together)
        yield from later
        later.clear()

    return planting.both(
        planting.attribute(Mixing, "_dummies", dummies),
        planting.both(
            planting.attribute(ExternalShuffle, "add", add),
            planting.attribute(ExternalShuffle, "permuted", permuted),
        ),
    )


def nothing_dropped() -> AbstractContextManager[None]:
    """Plant a shuffler that keeps every report, whatever the task says."""

    def other(spec: Any, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        draw_kept(spec, n_reports, rng)  # drawn, and not used
        return np.ones(n_reports, dtype=np.bool_)

    return planting.attribute(mixing, "draw_kept", other)


def dummies_of_another_task() -> AbstractContextManager[None]:
    """Plant dummies that are sealed for no task, so that the analyzer can tell and refuses them."""
    return planting.attribute(mixing, "report_context", lambda _: report_context(_NO_TASK))


def groups_numbered_by_time() -> AbstractContextManager[None]:
    """Plant a spool that keeps the order of arrival: groups are numbered by the clock."""

    class Clock:
        """Gives the time where random bits are asked for."""

        @staticmethod
        def randbits(_: int) -> int:
            """Give the time."""
            return time.time_ns()

    return planting.attribute(group, "secrets", Clock)


ORDERS: Final = (
    Fault(
        name="identity-permutation",
        says="the shuffler passes batches on in the order in which they came",
        scenario="orders",
        check="neighbours stay",
        plant=identity,
    ),
    Fault(
        name="biased-permutation",
        says="each report is swapped with any other, instead of with one that is not placed yet",
        scenario="orders",
        check="all orders of 3",
        plant=biased,
    ),
    Fault(
        name="chunked-permutation",
        says="reports are permuted among those that came with them, a thousand at a time",
        scenario="orders",
        check="blocks spread",
        plant=within_chunks,
    ),
    Fault(
        name="chunks-kept-together",
        says="chunks of ten reports are permuted, and keep their inner order",
        scenario="orders",
        check="neighbours stay",
        plant=whole_chunks,
    ),
    Fault(
        name="mersenne-twister",
        says="the order is drawn by a Mersenne Twister, seeded with 32 bits",
        scenario="orders",
        check="as many random bits as there are orders",
        plant=mersenne_twister,
    ),
    Fault(
        name="global-generator",
        says="the order is drawn by Python's own random, which nobody handed in",
        scenario="orders",
        check="the order follows from its generator",
        plant=python_random,
    ),
    Fault(
        name="large-batches-kept",
        says="batches of 65,536 reports and more are not permuted",
        scenario="mixing",
        check="a batch in memory: neighbours stay",
        plant=large_batches_kept,
    ),
    Fault(
        name="one-report-first",
        says="the report that lay first in the spool is always delivered first",
        scenario="mixing",
        check="a batch in memory: every report stands where its draws say",
        plant=one_report_first,
    ),
    Fault(
        name="one-order-for-all",
        says="the shuffler draws one order, and uses it for every batch of that size",
        scenario="mixing",
        check="another batch, another order",
        plant=one_order_for_all,
    ),
    Fault(
        name="many-buckets-kept",
        says="reports keep their order within a bucket where buckets are many",
        scenario="mixing",
        check="very many buckets: neighbours stay near",
        plant=many_buckets_kept,
    ),
    Fault(
        name="sorted-throws",
        says="what came first is thrown into the first buckets",
        scenario="mixing",
        check="a batch in buckets: blocks spread",
        plant=sorted_throws,
    ),
    Fault(
        name="order-of-the-task",
        says="the order follows from the task's digest, which everybody knows",
        scenario="mixing",
        check="every report stands where its draws say",
        plant=order_of_the_task,
    ),
    Fault(
        name="shuffler-dummies-last",
        says="the shuffler lays its dummies behind all users' reports",
        scenario="mixing",
        check="added reports stand among the others",
        plant=dummies_last,
    ),
    Fault(
        name="nothing-dropped",
        says="the shuffler keeps every report where a task lets it drop some",
        scenario="mixing",
        check="reports that are kept",
        plant=nothing_dropped,
    ),
    Fault(
        name="shuffler-dummies-elsewhere",
        says="the shuffler seals its dummies for no task",
        scenario="mixing",
        check="added reports open as users' do",
        plant=dummies_of_another_task,
    ),
    Fault(
        name="groups-by-time",
        says="submissions are numbered by the clock on the shuffler's disk",
        scenario="services",
        check="groups on disk in the order of arrival",
        plant=groups_numbered_by_time,
    ),
)
