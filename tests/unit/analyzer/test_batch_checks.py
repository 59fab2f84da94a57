import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from analyzer.intake import SentinelMatches, check_batch, check_refusals, exclude_sentinels
from analyzer.storage.task_table import Sentinel
from common.errors import SuspectBatchError, UnusableBatchError
from common.messages.batch import BatchId, BatchManifest
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import TaskDigest
from tests.support.leaves import some_leaves
from tests.support.results import result
from tests.support.tasks import published

_KEEPS = published(n_min=15).task
_SAMPLES = published(
    protocol="sbin",
    buckets=0,
    dummies_per_user=0,
    local_epsilon=float("inf"),
    n_min=1000,
    target_size=2000,
    shuffler=ShufflerSpec(law="binomial", keep_weight=2**31, trials=4000, most=4000),
).task


def _sightings(places: Sequence[int | None]) -> SentinelMatches:
    """Sentinels of one report each, in the order of sending, and where each is."""
    leaves = some_leaves(len(places))
    return SentinelMatches(
        sentinels=tuple(Sentinel(leaves=(leaf,), acknowledged=True) for leaf in leaves),
        places={
            leaf: place for leaf, place in zip(leaves, places, strict=True) if place is not None
        },
        n_repeated=0,
    )


def _shuffled(count: int, seed: int) -> list[int | None]:
    return list(np.random.default_rng(seed).permutation(10 * count)[:count].tolist())


@pytest.mark.parametrize("count", [0, 1, 12, 13, 50, 170, 400, 1000])
def test_an_honest_shuffler_is_not_accused(count: int) -> None:
    """Whatever the number of sentinels."""
    for seed in range(3):  # fails by chance with probability 3e-9 at most over seeds
        check_batch(_sightings(_shuffled(count, seed)), _KEEPS)


def test_an_honest_sampler_is_not_accused() -> None:
    """Half of all reports are kept; a thousand sentinels, of which about half are there."""
    # Twice FALSE_ALARM a seed, for the number and for the order: fails by chance with probability
    # 4e-8 at most over seeds.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = [
            place if kept else None
            for place, kept in zip(
                rng.permutation(1000).tolist(), rng.random(1000) < 0.5, strict=True
            )
        ]
        check_batch(_sightings(places), _SAMPLES)


@pytest.mark.parametrize("sent", [1, 30, 31, 59, 100, 250])
def test_chance_accuses_an_honest_sampler_as_seldom_as_is_said(sent: int) -> None:
    """The exact probability, too few and too many together: at most 1e-9, and not far below it."""
    accused = [there for there in range(sent + 1) if _is_accused_of_number(there, sent)]
    chance = Fraction(sum(math.comb(sent, there) for there in accused), 2**sent)

    assert chance <= Fraction(1, 10**9)
    assert sent < 59 or chance > Fraction(1, 10**10)


def _is_accused_of_number(there: int, sent: int) -> bool:
    """Say whether so many of so many, half of which should be there, are too few or too many."""
    try:
        check_batch(_sightings([*_shuffled(there, 1), *[None] * (sent - there)]), _SAMPLES)
    except SuspectBatchError as error:
        return "reports of sentinels arrived" in str(error)
    return False


def test_one_missing_sentinel_is_enough_where_everything_is_kept() -> None:
    """The shuffler had acknowledged it."""
    with pytest.raises(SuspectBatchError, match="1 of 50 sentinels are missing"):
        check_batch(_sightings([*_shuffled(49, 1), None]), _KEEPS)


@pytest.mark.parametrize(
    ("there", "accused"),
    [(0, True), (30, True), (60, False), (140, False), (170, True), (200, True)],
)
def test_a_sampler_is_accused_of_what_chance_does_not_do(there: int, accused: bool) -> None:  # noqa: FBT001
    """Too few of two hundred: they were dropped. Too many: it does not sample as it should."""
    places: list[int | None] = [*_shuffled(there, 1), *[None] * (200 - there)]
    if not accused:
        check_batch(_sightings(places), _SAMPLES)
        return
    with pytest.raises(SuspectBatchError, match=f"{there} of 200 reports of sentinels arrived"):
        check_batch(_sightings(places), _SAMPLES)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize(("count", "accused"), [(12, False), (13, True), (50, True), (1000, True)])
def test_an_order_that_was_kept_or_turned_round_is_noticed(
    count: int,
    accused: bool,  # noqa: FBT001
    step: int,
) -> None:
    """From thirteen sentinels on: 2/13! is below 1e-9."""
    places = list(range(5, 5 + 3 * count, 3))[::step]
    if not accused:
        check_batch(_sightings(places), _KEEPS)
        return
    with pytest.raises(SuspectBatchError, match="after a uniform permutation: Kendall's tau"):
        check_batch(_sightings(places), _KEEPS)


def test_a_half_hearted_shuffle_is_noticed() -> None:
    """Submissions moved by a tenth of the batch: fifty sentinels still tell."""
    rng = np.random.default_rng(1)  # fails by chance with probability far below 1e-9
    places = [5000 * n + int(rng.integers(0, 500)) * 50 + n for n in range(50)]

    with pytest.raises(SuspectBatchError, match="Kendall's tau"):
        check_batch(_sightings(places), _KEEPS)


def _manifest(n_users: int, n_reports: int) -> BatchManifest:
    return BatchManifest(
        task_digest=TaskDigest(bytes(32)),
        batch_id=BatchId(bytes(16)),
        n_users=n_users,
        n_reports=n_reports,
    )


def test_sentinels_are_neither_users_nor_reports() -> None:
    """Of a hundred users and two hundred reports."""
    left = exclude_sentinels(_manifest(100, 200), _sightings(_shuffled(10, 1)), _KEEPS)

    assert (90, 190) == (left.n_users, left.n_reports)


def test_n_min_holds_without_sentinels() -> None:
    """Fifteen users suffice, fourteen and a sentinel do not."""
    exclude_sentinels(_manifest(16, 32), _sightings([3]), _KEEPS)

    with pytest.raises(UnusableBatchError, match=r"14 users beside 1 sentinels.* at least 15"):
        exclude_sentinels(_manifest(15, 30), _sightings([3]), _KEEPS)


@pytest.mark.parametrize(
    ("share", "accused"), [(0.0, True), (0.04, True), (0.05, False), (1.0, False)]
)
def test_an_operator_says_how_many_reports_may_be_refused(share: float, accused: bool) -> None:  # noqa: FBT001
    """One of twenty is 5 %."""
    released = result(TaskDigest(bytes(32)))
    if not accused:
        check_refusals(released, share)
        return
    with pytest.raises(SuspectBatchError, match="1 of the batch's 20 reports were refused"):
        check_refusals(released, share)
