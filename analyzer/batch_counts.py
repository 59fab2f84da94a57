"""
Count a batch's reports: by cell those that count, by cause those that are refused.

A batch must pass checks of its numbers, unless its operator decided to release it all the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, ParamSpec, Self

import numpy as np
from scipy import special

from shuffledp.common.crypto.hpke_pool import Opened
from shuffledp.common.errors import SuspectBatchError, UnusableBatchError
from shuffledp.common.mechanisms.base import Randomizer, Reports, Tally, is_null
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.messages.guarantee import CheckName, Waived
from shuffledp.common.messages.ledger_entry import DecisionEntry
from shuffledp.common.messages.result import RefusalCause
from shuffledp.common.task.task import Task, honest_share

P = ParamSpec("P")


class SliceCounts(NamedTuple):
    """
    Numbers of a slice's opened reports.

    Only totals leave a worker: outcomes of single reports would let a shuffler recognize a report
    that it has tampered with.
    """

    counted: int
    null: int
    unreadable: int
    malformed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Counts of an opened batch, without its sentinels."""

    cells: Tally
    counted: int
    """Reports in `cells`."""
    null: int
    """Null reports: padding, discarded."""
    refused: Mapping[RefusalCause, int]
    """Reports not counted, by cause; further copies of sentinels' reports are repeats."""
    open_seconds: float
    """Duration of opening and counting."""

    @classmethod
    def joined(
        cls, cells: Tally, slices: Iterable[SliceCounts], *, n_repeated: int, open_seconds: float
    ) -> Self:
        """
        Join the counts of all slices.

        `n_repeated` reports were copies of others, sentinels' copies included, and were dropped
        before opening.
        """
        counted, null, unreadable, malformed = (
            sum(numbers) for numbers in zip(*slices, strict=True)
        )
        return cls(
            cells=cells,
            counted=counted,
            null=null,
            refused={"repeated": n_repeated, "unreadable": unreadable, "malformed": malformed},
            open_seconds=open_seconds,
        )

    @property
    def n_refused(self) -> int:
        """Reports refused for any cause."""
        return sum(self.refused.values())


def count_reports(opened: Opened, mechanism: Randomizer) -> tuple[SliceCounts, Tally]:
    """Check opened reports; count the valid ones by cell. Run by the analyzer's workers."""
    readable = np.frombuffer(opened.readable, dtype=np.bool_)
    reports: Reports = np.frombuffer(opened.plaintexts, dtype=mechanism.report_dtype)[readable]
    padding, fine = is_null(reports), mechanism.valid(reports)
    found = SliceCounts(
        counted=int(fine.sum()),
        null=int(padding.sum()),
        unreadable=len(readable) - len(reports),
        malformed=int((~fine & ~padding).sum()),
    )
    return found, mechanism.tally(reports[fine])


def refuse_excess_padding(counts: BatchCounts, task: Task, batch: BatchManifest) -> BatchCounts:
    """
    Refuse as malformed the null reports beyond what the batch's users can send.

    Each user sends at least their own reports and the task's fixed dummies, and pads to the next of
    the task's lengths, or fills rooms without a cluster. What a relay discarded is refused too.
    """
    fixed, n_users = task.own_reports + task.dummies.certain, batch.n_users
    room = min(batch.n_reports - n_users * fixed, n_users * task.dummies.most_padding)
    excess = max(0, counts.null - max(0, room))
    refused: dict[RefusalCause, int] = {
        **counts.refused,
        "malformed": counts.refused["malformed"] + excess,
    }
    if batch.n_discarded:
        refused["discarded"] = batch.n_discarded
    return replace(counts, null=counts.null - excess, refused=refused)


_FALSE_ALARM: Final = 3e-7
"""Probability, that of 5 standard deviations, with which an honest batch fails `check_lengths`."""


def check_lengths(batch: BatchManifest, task: Task) -> None:
    """
    Check that no more long submissions are missing than honest users' own draws explain.

    Otherwise somebody on the network may have dropped them, and the noise of their dummies with
    them. For each length but the shortest, the number of submissions of at least that length is
    tested: of h honest users it is binomial, so a rare length counts with all longer ones. Their
    sum is the number of dummies. The tests share the false-alarm rate, by the union bound: each of
    255 notices a shortage of 6 standard deviations. Dishonest users can fill a larger one.

    Raises:
        SuspectBatchError: Honest users' draws fail any of the tests with probability below 3e-7.
    """
    if not batch.by_length:
        return  # a batch of a former version, or of a task with one length
    honest = honest_share(batch.n_users, task.assumed_honest_fraction)
    chances = np.cumsum(task.dummies.length_probabilities()[::-1])[-2::-1]
    numbers = np.cumsum(np.array(batch.by_length, dtype=np.int64)[::-1])[-2::-1]
    low = special.bdtr(np.minimum(numbers, honest), honest, np.minimum(chances, 1.0))
    if low.min(initial=1.0) < _FALSE_ALARM / max(1, len(low)):
        place = int(low.argmin())
        raise SuspectBatchError(
            f"{numbers[place]} of {batch.n_users} submissions have {task.lengths[place + 1]} or "
            f"more reports; about {honest * chances[place]:.0f} of {honest} honest users should "
            "have that many"
        )


def check_counts(counts: BatchCounts, n_reports: int, most_refused_share: float) -> None:
    """
    Check that enough of a batch's `n_reports` reports were counted to estimate its result.

    Honest devices and an honest shuffler cause no refusals; a broken or malicious device causes
    refusals of its own reports only.

    Raises UnusableBatchError if no report was counted; SuspectBatchError if the share of refused
    reports exceeds the operator's limit.
    """
    if counts.counted == 0:
        raise UnusableBatchError(f"none of the batch's {n_reports} reports could be counted")
    if counts.n_refused > most_refused_share * n_reports:
        raise SuspectBatchError(
            f"{counts.n_refused} of the batch's {n_reports} reports were refused; "
            f"most_refused_share is {most_refused_share}"
        )


class Waiver:
    """The checks that a batch fails and its operator waives: all of them, or none."""

    def __init__(self, decision: DecisionEntry | None) -> None:
        """`decision` is the operator's last one; only one to release the batch waives checks."""
        self._decision = decision if decision and decision.decision == "release" else None
        self._failed = [self._decision.reason] if self._decision else []
        self._checks: tuple[CheckName, ...] = ()

    def run(
        self, name: CheckName, check: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run a check; raise its SuspectBatchError unless it is waived."""
        try:
            check(*args, **kwargs)
        except SuspectBatchError as error:
            if self._decision is None:
                raise
            self._failed.append(str(error))
            self._checks += (name,)

    def waived(self, batch: BatchManifest) -> Waived:
        """Return the checks that a batch failed so far, and what its guarantees need instead."""
        return Waived(self._checks, batch.by_length if "lengths" in self._checks else ())

    def warnings(self) -> tuple[str, ...]:
        """Return the warning of a batch that is released in spite of failed checks."""
        if self._decision is None:
            return ()
        failed = "; ".join(dict.fromkeys(self._failed))
        warning = f"the operator released this batch although it failed a check: {failed}"
        return (f"{warning}; the operator's note: {self._decision.note}",)
