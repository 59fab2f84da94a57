import dataclasses
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from common.crypto.batch_key import BatchKey
from common.crypto.hpke import HpkePublicKey, SealContext, report_context, split_every
from common.errors import DamagedStorageError
from common.mechanisms.registry import mechanism_of
from common.task.dummy_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from deploy.audit.harness.analyzer_core import InlinePool
from deploy.audit.sampling.orders import MemoryBuckets
from shuffler import shuffle
from shuffler.permutation import ExternalPermutation
from shuffler.shuffle import BatchShuffler, ShuffleSummary, draw_item_dummies, draw_kept
from shuffler.storage.batch_files import BatchFiles
from tests.support.mechanisms import Scripted
from tests.support.tasks import SHUFFLER_NOISE, PublishedTask, published

_PLAIN: Final = SHUFFLER_NOISE | {"domain_size": 7, "delta": 1e-2}
_COINS: Final = ShufflerSpec(law="binomial", trials=600, most=600)
_SAMPLED: Final = dataclasses.replace(_COINS, keep_weight=KEEP_SUM // 4)
_CASES: Final = {
    "permutes": published(),
    "dummies": published(shuffler=_COINS, **_PLAIN),
    "dummies, sampled": published(shuffler=_SAMPLED, **_PLAIN),
}


class _SlowPool(InlinePool):
    """Takes a while to seal."""

    seconds = 0.0

    def seal(
        self, key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> Future[bytes]:
        """Seal one chunk."""
        time.sleep(0.2)
        self.seconds += 0.2
        return super().seal(key, plaintexts, plaintext_bytes, context)


def _files(path: Path) -> BatchFiles:
    return BatchFiles(path / "batches" / "b", BatchKey(bytes(32)))


def _shuffler(case: PublishedTask, path: Path, n_users: int, **changes: Any) -> BatchShuffler:
    fields: dict[str, Any] = {
        "task": case.task,
        "digest": case.signed.digest(),
        "n_users": n_users,
        "files": _files(path),
        "pool": InlinePool(),
        "rng": np.random.default_rng(1),
    }
    return BatchShuffler(**fields | changes)


def _shuffle(
    case: PublishedTask, path: Path, groups: list[bytes], n_users: int, **changes: Any
) -> tuple[ShuffleSummary, list[bytes]]:
    shuffled = _shuffler(case, path, n_users, **changes).shuffle(iter(groups))
    order = b"".join(_files(path).saved())
    return shuffled, split_every(order, case.task.sealed_report_bytes)


def _groups(case: PublishedTask, n_users: int) -> list[bytes]:
    user_bytes = case.task.reports_per_user * case.task.sealed_report_bytes
    return [
        np.random.default_rng(start).bytes(min(30, n_users - start) * user_bytes)
        for start in range(0, n_users, 30)
    ]


@pytest.mark.parametrize("room", [5000, 10**9], ids=["in buckets", "in memory"])
@pytest.mark.parametrize("name", list(_CASES))
def test_the_batch_is_the_kept_reports_and_the_dummies(
    tmp_path: Path, name: str, room: int
) -> None:
    """
    Users' reports are there at most once, or exactly once where none is dropped, and as many
    dummies of each item as the distribution says.

    2000 users, seed 1: the kept quarter lies within eight standard deviations of 500, and seven
    times 600 coins within eight of 2100; so does the mean rank of users' reports among the dummies
    of a half. Fails by chance with probability below 1e-14.
    """
    case = _CASES[name]
    groups = _groups(case, 2000)
    own = set(split_every(b"".join(groups), case.task.sealed_report_bytes))
    shuffled, order = _shuffle(case, tmp_path, groups, 2000, buffer_bytes=room)
    kept = [report for report in order if report in own]
    n_dummies = len(order) - len(kept)

    assert 1 == max(Counter(order).values())
    assert len(order) == shuffled.n_reports
    assert shuffled.seconds > 0
    if case.task.shuffler.keep_weight == KEEP_SUM:
        assert own == set(kept)
    else:
        assert abs(len(kept) - 500) < 8 * np.sqrt(2000 * 3 / 16)
    if case.task.shuffler.only_permutes:
        assert 0 == n_dummies
    else:
        assert abs(n_dummies - 2100) < 8 * np.sqrt(7 * 600 / 4)
        mechanism, context = mechanism_of(case.task), report_context(case.signed.digest())
        dummies = [case.analyzer_key.open(one, context) for one in order if one not in own]
        opened = np.frombuffer(b"".join(dummies), dtype=mechanism.report_dtype)
        assert mechanism.valid(opened).all()
        ranks = [place + 0.5 for place, report in enumerate(order) if report in own]
        mean = np.mean(ranks) / len(order)
        assert abs(mean - 0.5) < 8 / np.sqrt(12 * len(kept))
    assert [path.name for path in (tmp_path / "batches" / "b").iterdir()] == ["permuted"]


@pytest.mark.parametrize("room", [5000, 10**9], ids=["in buckets", "in memory"])
def test_the_order_depends_on_the_generator_only(tmp_path: Path, room: int) -> None:
    """The task does not matter."""
    case, other = _CASES["permutes"], published(n_min=4)
    groups, size = _groups(case, 300), case.task.sealed_report_bytes
    for seed in (1, 2):
        shuffle = ExternalPermutation(
            report_bytes=size,
            buckets=MemoryBuckets(),
            n_buckets=1,
            rng=np.random.default_rng(seed),
            buffer_bytes=room,
        )
        for group in groups:
            shuffle.add(np.frombuffer(group, dtype=np.uint8).reshape(-1, size))
        expected = [bytes(report) for chunk in shuffle.permuted(7) for report in chunk]
        for of_task in (case, other):
            changes = {"rng": np.random.default_rng(seed), "buffer_bytes": room}
            _, order = _shuffle(of_task, tmp_path / str(seed), groups, 300, **changes)
            assert expected == order
        assert b"".join(expected) != b"".join(groups)


def test_the_reported_time_excludes_sealing(tmp_path: Path) -> None:
    """Sealing takes longer with more dummies, and so would reveal how many reports were kept."""
    case, pool = _CASES["dummies, sampled"], _SlowPool()
    shuffled, _ = _shuffle(case, tmp_path, _groups(case, 60), 60, pool=pool)

    assert pool.seconds > 0
    assert shuffled.seconds < pool.seconds


@pytest.mark.parametrize("change", [-1, 1])
def test_a_missing_or_extra_submission_stops_the_shuffle(tmp_path: Path, change: int) -> None:
    """The number of reports must be that of the batch's users."""
    case = _CASES["permutes"]
    with pytest.raises(DamagedStorageError, match="users sent 120 reports"):
        _shuffle(case, tmp_path, _groups(case, 60 + change), 60)
    assert [] == list((tmp_path / "batches" / "b").iterdir())


def test_an_abandoned_shuffle_leaves_no_file(tmp_path: Path) -> None:
    """The service stops, and shuffles again after its next start."""
    case = _CASES["permutes"]
    shuffler = _shuffler(case, tmp_path, 60)
    shuffler.abandon()
    with pytest.raises(RuntimeError, match="is stopping"):
        shuffler.shuffle(iter(_groups(case, 60)))
    assert [] == list((tmp_path / "batches" / "b").iterdir())


_FLANKED = ShufflerSpec(
    law="geometric", peak=6, left_weight=RATIO_SUM * 3 // 4, right_weight=RATIO_SUM // 2, most=40
)


_SKEWED = ShufflerSpec(
    law="geometric", peak=2, left_weight=RATIO_SUM // 3, right_weight=RATIO_SUM * 9 // 10, most=5
)


_FROM_ZERO = ShufflerSpec(
    law="geometric", left_weight=RATIO_SUM // 3, right_weight=RATIO_SUM * 9 // 10, most=60
)


@pytest.mark.parametrize(
    "spec",
    [
        *(_FLANKED, _SKEWED, _FROM_ZERO),
        *(ShufflerSpec(law="binomial", trials=coins, most=coins) for coins in (1, 5, 64, 100, 129)),
    ],
    ids=str,
)
def test_dummies_have_the_stated_distribution(spec: ShufflerSpec) -> None:
    """300,000 draws agree by chi-square; cells of fewer than ten expected draws are pooled."""
    # Seed 1; fails by chance with probability 1e-7 for each.
    drawn = draw_item_dummies(spec, 300_000, np.random.default_rng(1))
    coins = stats.binom.pmf(np.arange(spec.most + 1), spec.trials, 0.5)
    distribution = coins if spec.law == "binomial" else spec.probabilities()
    expected = distribution * len(drawn)
    counts = np.bincount(drawn, minlength=len(expected))
    rare = expected < 10
    pooled = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    used = wanted > 0
    distance = float(((pooled - wanted)[used] ** 2 / wanted[used]).sum())

    assert drawn.max() <= spec.most
    assert stats.chi2.sf(distance, used.sum() - 1) > 1e-7


def test_items_drawn_in_different_parts_are_independent() -> None:
    """A million items at 400 coins are drawn in parts; no part repeats another."""
    spec = ShufflerSpec(law="binomial", trials=400, most=400)
    drawn = draw_item_dummies(spec, 1_000_000, np.random.default_rng(5))
    together = shuffle._WORDS_AT_ONCE // 7
    first, second = drawn[:together] - 200, drawn[together:][:together] - 200
    correlation = float((first[: len(second)] * second).mean()) / 100

    assert len(second) > 100_000
    assert abs(correlation) < 6 / np.sqrt(len(second))


@pytest.mark.parametrize("spec", [_FLANKED, ShufflerSpec(law="binomial", trials=9, most=9)])
def test_numbers_of_dummies_are_independent_between_items(spec: ShufflerSpec) -> None:
    """No two items' numbers correlate. Seed 6; fails by chance with probability below 1e-7."""
    rng = np.random.default_rng(6)
    drawn = np.array([draw_item_dummies(spec, 6, rng) for _ in range(4000)])
    together = np.corrcoef(drawn.T)[np.triu_indices(6, 1)]

    assert np.abs(together).max() < 6 / np.sqrt(4000)


def test_a_report_is_kept_if_its_integer_is_below_the_weight() -> None:
    """The boundary is not kept."""
    kept = draw_kept(ShufflerSpec(keep_weight=7), 4, Scripted([0, 6, 7, 2**32 - 1]))

    assert [True, True, False, False] == kept.tolist()


def test_nothing_is_drawn_where_nothing_is_dropped_or_added() -> None:
    """The generator's state does not change."""
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state

    assert draw_kept(ShufflerSpec(keep_weight=KEEP_SUM), 5, rng).all()
    assert [0, 0, 0] == draw_item_dummies(ShufflerSpec(), 3, rng).tolist()
    assert before == rng.bit_generator.state
