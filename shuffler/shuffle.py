"""
Shuffle a closed batch in bounded memory: drop reports, add dummies, permute, save.

The drops, the dummies and the order are drawn once and saved together; a crash before the save
leaves no trace of them. Every draw is exact: fair bits, and bounded integers that numpy draws by
rejection. A floating-point table of the distribution would cut off its tail, on which the δ of the
guarantee depends [MSE25]. Dummies are sealed like users' reports and look like them.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePublicKey, report_context
from common.crypto.hpke_pool import HpkePool
from common.errors import DamagedStorageError
from common.messages.submission import plain_reports
from common.task.dummy_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.batches import MAX_CHUNK_BYTES
from shuffler.permutation import BUFFER_BYTES, ExternalPermutation, SealedReports, bucket_count
from shuffler.storage.batch_files import BatchFiles

_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 2**22
"""Maximum number of random words in memory: 32 MiB."""
_CHUNK_REPORTS: Final = 1000
"""Maximum number of sealed reports in a chunk of the permuted batch, and of dummies sealed by one
call to a worker."""

T = TypeVar("T")


def draw_kept(spec: ShufflerSpec, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """
    Draw which reports are kept, each independently with probability keep_weight / KEEP_SUM.

    Nothing is drawn if every report is kept. Shape (n_reports,).
    """
    if spec.keep_weight == KEEP_SUM:
        return np.ones(n_reports, dtype=np.bool_)
    return rng.integers(0, KEEP_SUM, size=n_reports, dtype=np.int64) < spec.keep_weight


def draw_item_dummies(
    spec: ShufflerSpec, domain_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw the number of dummies of each item, independently.

    Returns:
        Counts of shape (domain_size,), each in 0 .. spec.most.

    Cost: `spec.draws_per_item` draws per item.
    """
    if spec.law == "binomial":
        return _binomial(spec.trials, domain_size, rng)
    if spec.law == "geometric":
        return _two_sided_geometric(spec, domain_size, rng)
    return np.zeros(domain_size, dtype=np.int64)


def _binomial(coins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` numbers of heads among `coins` fair coins: the set bits of random words."""
    whole, rest = divmod(coins, _WORD_BITS)
    words = whole + (rest > 0)
    together = max(1, _WORDS_AT_ONCE // words)
    heads = np.empty(count, dtype=np.int64)
    for start in range(0, count, together):
        part = heads[start : start + together]
        bits = rng.integers(0, 2**_WORD_BITS, size=(len(part), words), dtype=np.uint64)
        if rest:
            bits[:, -1] &= np.uint64(2**rest - 1)
        part[:] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return heads


def _two_sided_geometric(
    spec: ShufflerSpec, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw `count` numbers with P(z) ∝ l^(peak-z) below the peak and ∝ r^(z-peak) from it on.

    By rejection: a fair coin proposes a side, and a geometric number is the distance j to the peak,
    with probability (1-r)·r^j for j ≥ 0 above and (1-l)·l^(j-1) for j ≥ 1 below. Proposals above
    are accepted with chance ∝ 1-l, those below ∝ l·(1-r): either way (1-l)·(1-r) times r^j or l^j
    remains. Numbers below 0 or above `most` are drawn again.
    """
    left, right = spec.left_weight, spec.right_weight
    chances = np.array([left * (RATIO_SUM - right), RATIO_SUM * (RATIO_SUM - left)])
    if spec.peak == 0:
        chances[0] = 0  # no left flank: every proposal on the right is accepted
    drawn = np.full(count, -1, dtype=np.int64)
    while (open_ := np.flatnonzero(drawn < 0)).size:
        above = rng.integers(0 if spec.peak else 1, 2, size=len(open_), dtype=np.int64)
        accepted = rng.integers(0, chances.max(), size=len(open_), dtype=np.int64) < chances[above]
        steps = np.empty(len(open_), dtype=np.int64)
        for side, weight in ((0, left), (1, right)):
            chosen = above == side
            steps[chosen] = _geometric(weight, int(chosen.sum()), rng)
        proposed = np.where(above == 1, spec.peak + steps, spec.peak - 1 - steps)
        fits = accepted & (proposed >= 0) & (proposed <= spec.most)
        drawn[open_[fits]] = proposed[fits]
    return drawn


def _geometric(weight: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` numbers with P(j) = (1-x)·x^j for j ≥ 0, where x = weight / RATIO_SUM."""
    steps = np.zeros(count, dtype=np.int64)
    active = np.arange(count)
    while active.size:
        active = active[rng.integers(0, RATIO_SUM, size=len(active), dtype=np.int64) < weight]
        steps[active] += 1
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSummary:
    """Facts about a shuffled batch that may be published."""

    n_reports: int
    """Number of reports, the shuffler's dummies included."""
    seconds: float
    """Time of the permutation alone. The time to seal dummies would reveal their number and, if
    reports are dropped, the number kept. The guarantee assumes that both are secret."""


class BatchShuffler:
    """Shuffles one closed batch; another thread may stop the shuffle with `abandon`."""

    def __init__(
        self,
        *,
        task: Task,
        digest: TaskDigest,
        n_users: int,
        files: BatchFiles,
        pool: HpkePool,
        rng: np.random.Generator,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._task = task
        self._digest = digest
        self._n_users = n_users
        self._files = files
        self._pool = pool
        self._rng = rng
        self._buffer_bytes = buffer_bytes
        self._abandoned = threading.Event()

    def abandon(self) -> None:
        """Stop the shuffle at its next step, without a result."""
        self._abandoned.set()

    def shuffle(self, groups: Iterable[bytes]) -> ShuffleSummary:
        """
        Drop reports, add dummies, permute, and save the result.

        Args:
            groups: The sealed reports of all submissions, in groups of whole submissions.

        Raises:
            DamagedStorageError: The number of reports does not match the number of users.
            StorageError: The disk is full, read-only or failing.
            RuntimeError: `abandon` was called.

        Cost: about 0.5 microseconds per report, which is sealed and opened twice under the batch's
        key, moved three times, and written and read twice; 0.1 ms of one core per dummy. Memory:
        that of ExternalPermutation, and one count per item.
        """
        task, size = self._task, self._task.sealed_report_bytes
        self._files.begin()
        counts = draw_item_dummies(task.shuffler, task.domain_size, self._rng)
        expected = self._n_users * task.reports_per_user + int(counts.sum())
        permutation = ExternalPermutation(
            report_bytes=size,
            buckets=self._files,
            n_buckets=bucket_count(expected * size),
            rng=self._rng,
            buffer_bytes=self._buffer_bytes,
        )
        for reports in self._kept(groups):
            permutation.add(reports)
        for reports in self._dummies(np.cumsum(counts)):
            permutation.add(reports)
        together = min(_CHUNK_REPORTS, MAX_CHUNK_BYTES // size)
        self._files.save(
            chunk.tobytes() for chunk in self._until_abandoned(permutation.permuted(together))
        )
        return ShuffleSummary(n_reports=permutation.n_reports, seconds=permutation.seconds)

    def _kept(self, groups: Iterable[bytes]) -> Iterator[SealedReports]:
        """Yield the kept reports; then raise DamagedStorageError if the total number is wrong."""
        arrived, size = 0, self._task.sealed_report_bytes
        for group in self._until_abandoned(groups):
            reports = np.frombuffer(group, dtype=np.uint8).reshape(-1, size)
            arrived += len(reports)
            if self._task.shuffler.only_permutes:
                yield reports
            else:
                yield reports[draw_kept(self._task.shuffler, len(reports), self._rng)]
        expected = self._n_users * self._task.reports_per_user
        if arrived != expected:
            raise DamagedStorageError(
                f"the batch's users sent {expected} reports; {arrived} are on the disk"
            )

    def _dummies(self, ends: NDArray[np.int64]) -> Iterator[SealedReports]:
        """Yield the dummies, item by item, sealed by all workers."""
        task, context = self._task, report_context(self._digest)
        key = HpkePublicKey(task.suite, task.analyzer_key)
        sealing = (
            self._pool.seal(
                key,
                plain_reports(
                    np.searchsorted(
                        ends, np.arange(start, min(start + _CHUNK_REPORTS, ends[-1])), side="right"
                    )
                ).tobytes(),
                task.mechanism.report_bytes,
                context,
            )
            for start in range(0, int(ends[-1]), _CHUNK_REPORTS)
        )
        for sealed in self._until_abandoned(self._pool.in_order(sealing)):
            yield np.frombuffer(sealed, dtype=np.uint8).reshape(-1, task.sealed_report_bytes)

    def _until_abandoned(self, parts: Iterable[T]) -> Iterator[T]:
        for part in parts:
            if self._abandoned.is_set():
                raise RuntimeError("the service is stopping")
            yield part
