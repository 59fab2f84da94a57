import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.mechanisms.base import Reports
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing, elements_of
from shuffledp.common.mechanisms.discovery.prefix_search import (
    critical_count,
    find_codes,
    next_counts,
    sure_share,
    usable,
)
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import FoundValues
from shuffledp.common.task.draft import OpenDraft
from shuffledp.lab.planning.predictions import planned_share

_FOUR = ((0, 1, -1, -1), (0, 1, 2, -1), (0, 1, 2, 3))


def _mechanism(local_epsilon: float = 6.0, buckets: int = 401) -> PrefixHashing:
    return PrefixHashing(buckets, _FOUR, ResponseWeights.for_epsilon(local_epsilon))


def _reports(mechanism: PrefixHashing, users: dict[bytes, int], seed: int) -> Reports:
    rows = np.concatenate([elements_of(value, 4) for value in users])
    held = np.repeat(rows, list(users.values()), axis=0)
    return mechanism.randomize(held, np.random.default_rng(seed))


@pytest.mark.parametrize("buckets", [257, 2971, 65521])
@pytest.mark.parametrize("others", [0, 1, 7, 15])
def test_a_report_supports_exactly_the_bytes_that_hash_to_its_bucket(
    buckets: int, others: int
) -> None:
    """Prefixes of bytes and of labels."""
    rng, count = np.random.default_rng([buckets, others]), 5_000
    columns = (tuple(range(others + 1)),)
    mechanism = PrefixHashing(buckets, columns, ResponseWeights(true=3, other=1))
    reports = np.zeros(count, dtype=mechanism.report_dtype)
    reports["seed"] = rng.integers(0, buckets, size=(count, others + 1))
    reports["seed"][:, -1] = rng.integers(1, buckets, size=count)
    reports["bucket"] = rng.integers(0, buckets, size=count)
    reports["bucket"][:20] = 0
    prefixes: NDArray[np.int64] = rng.integers(0, 256, size=(3, others))
    if others == 1:
        prefixes[:, 0] = [0, buckets - 1, 255]
    prefixes[0] = 255
    seeds, last = reports["seed"][:, :-1].astype(np.int64), reports["seed"][:, -1:].astype(np.int64)

    expected = [
        (((reports["bucket"] - seeds @ prefix)[:, np.newaxis] - last * np.arange(256)) % buckets)
        for prefix in prefixes
    ]
    found = next_counts(mechanism, reports, prefixes)
    assert [(rest == 0).sum(axis=0).tolist() for rest in expected] == found.tolist()


def _found(users: dict[bytes, int], seed: int, *, text: bool) -> FoundValues:
    mechanism = _mechanism()
    return find_codes(mechanism, _reports(mechanism, users, seed), text=text)


def test_frequent_codes_are_found_with_unbiased_shares() -> None:
    """
    Five codes of 60,000 users, two with a common prefix; the rest holds codes of its own.

    Seed 2. Each is held by 4 %, twice the share that is found with 95 % probability; an estimate
    errs by six standard errors with probability 1e-8, and more than 12 values that nobody holds
    are found with probability 1e-10.
    """
    frequent = [bytes([7, 7, 7, 1]), bytes([7, 7, 7, 2]), b"\0\0\0\0", b"\xff\xff\xff\xff", b"abcd"]
    users = dict.fromkeys(frequent, 2_400)
    rare = np.random.default_rng(1).integers(0, 256, size=(48_000, 4)).astype(np.uint8)
    users |= {bytes(row): 1 for row in rare}
    found = _found(users, 2, text=False)
    n_users = sum(users.values())

    assert set(frequent) <= set(found.values)
    assert len(found.values) <= 5 + 12
    assert n_users == found.reports.sum()
    assert 0 < found.least_share < found.sure_share < 0.02
    assert 0 < found.expected_false <= 1
    assert not found.overfull
    figures = zip(found.shares, found.standard_errors, strict=True)
    by_value = dict(zip(found.values, figures, strict=True))
    for value in frequent:
        share, error = by_value[value]
        assert abs(share - 2_400 / n_users) < 6 * error
    assert list(found.shares) == sorted(found.shares, reverse=True)


@pytest.mark.slow
def test_a_frequent_neighbour_hides_no_value() -> None:
    """
    Values that differ in one byte from one that 30 % hold, and one that does not.

    Seeds 0 to 5. The mean of six scores exceeds 5.5 / √6 by chance with probability 4e-8; without
    the correction neighbours have -3.
    """
    mechanism, n_users = (
        PrefixHashing(257, ((0, 1, -1), (0, 1, 2)), ResponseWeights.for_epsilon(5.0)),
        500_000,
    )
    values = [b"AAA", b"AAB", b"BAA", b"ZZZ"]
    users = [150_000, 2_000, 2_000, 2_000]
    rng, scores = np.random.default_rng(1), []
    rows = np.concatenate([elements_of(value, 3) for value in values])
    others = rng.integers(97, 123, size=(n_users - sum(users), 3))
    held = np.concatenate([np.repeat(rows, users, axis=0), others])
    for seed in range(6):
        reports = mechanism.randomize(held, np.random.default_rng(seed))
        found = find_codes(mechanism, reports, text=True)
        places = [found.values.index(value) for value in values]
        errors = found.shares[places] - np.array(users) / n_users
        scores.append(errors / found.standard_errors[places])

    assert (np.abs(np.mean(scores, axis=0)) < 5.5 / np.sqrt(6)).all()


@pytest.mark.parametrize("multiples", [False, True])
def test_crafted_reports_cannot_support_many_values(multiples: bool) -> None:  # noqa: FBT001
    """
    Reports that support every value, or multiples of one that support 1/g of all, are left out.

    Seed 5. 100 crafted reports at each of three levels, beside 20,000 users: honest users alone
    send so many multiples at no level but the first (probability below 1e-8).
    """
    mechanism = _mechanism()
    honest = _reports(mechanism, {b"abcd": 12_000, b"efgh": 8_000}, 5)
    crafted = np.zeros(300, dtype=mechanism.report_dtype)
    crafted["level"] = np.repeat(np.arange(3), 100)
    if multiples:
        scale = np.tile(np.arange(1, 101), 3)
        crafted["seed"] = scale[:, np.newaxis]
        crafted["bucket"] = scale * 100 * (crafted["level"] + 2) % mechanism.buckets
    reports = np.concatenate([honest, crafted])
    found = find_codes(mechanism, reports, text=False)

    assert {b"abcd", b"efgh"} == set(found.values)
    assert not found.overfull
    assert len(reports) == found.reports.sum()
    for level in (1, 2):
        kept = usable(mechanism, reports, level)
        own = honest[honest["level"] == level]
        used = own["seed"][:, : level + 2]
        assert (used > 0).all(axis=1).sum() == len(kept)


def test_texts_end_with_zero_bytes_and_are_valid() -> None:
    """Of four equally frequent values, those that are no text are not found. Seed 3."""
    users = dict.fromkeys((b"ab", "é!".encode(), b"\xff\xffab", b"a\0b"), 10_000)
    texts, codes = (_found(users, 3, text=text) for text in (True, False))

    assert {b"ab\0\0", "é!".encode() + b"\0"} == set(texts.values)
    assert {value.ljust(4, b"\0") for value in users} <= set(codes.values)


@pytest.mark.parametrize("n_users", [0, 1, 4])
def test_with_few_users_nothing_is_found(n_users: int) -> None:
    """No share is found for sure; the result is complete all the same."""
    found = _found({b"ab": n_users}, 4, text=True)

    assert () == found.values
    assert (1.0, 3) == (found.sure_share, len(found.reports))


@pytest.mark.slow
def test_an_estimate_is_unbiased_and_its_error_is_its_spread() -> None:
    """
    Over 300 collections of 3,000 users, of whom 40 % hold a code.

    Seeds 0 to 299. The mean errs by 5.5 of its standard errors, or the spread by as many, with
    probability below 1e-7. All users are at the one level, so nothing errs but the noise.
    """
    mechanism = PrefixHashing(65521, ((0,),), ResponseWeights.for_epsilon(12.0))
    rows = np.repeat(np.array([[65], [66]]), [1_200, 1_800], axis=0)
    errors = []
    for seed in range(300):
        reports = mechanism.randomize(rows, np.random.default_rng(seed))
        found = find_codes(mechanism, reports, text=False)
        place = found.values.index(b"A")
        errors.append((found.shares[place] - 0.4) / found.standard_errors[place])

    assert abs(np.mean(errors)) < 5.5 / np.sqrt(300)
    assert abs(np.std(errors) - 1) < 5.5 / np.sqrt(600)


def test_a_threshold_allows_few_false_values_and_a_sure_share_passes_all() -> None:
    """The tail at the last level times the candidates is at most 1; the share has .95."""
    mechanism = PrefixHashing.of(PrefixHashing.specify(OpenDraft(), 2971, 8.0))
    numbers = np.full(7, 86_046)
    critical = [critical_count(86_046, 65_536, 2971, last=level == 6) for level in range(7)]
    share = sure_share(mechanism, numbers, critical)
    chance = mechanism.q + (mechanism.p - mechanism.q) * share
    for last, most in ((True, 1), (False, 50)):
        count = critical_count(1000, 10_000, 257, last=last)
        assert 10_000 * stats.binom.sf(count, 1000, 1 / 257) <= most
        assert most < 10_000 * stats.binom.sf(count - 1, 1000, 1 / 257)

    assert 0.95 == pytest.approx(np.prod(stats.binom.sf(critical, numbers, chance)), abs=1e-6)
    assert 0.0008 < share < 0.001
    assert share == planned_share(PrefixHashing.specify(OpenDraft(), 2971, 8.0), 602_325)


def test_too_many_frequent_prefixes_are_reported() -> None:
    """
    Crafted reports raise 33 lines of 255 prefixes each, more than the 8,192 that are kept.

    Seed 6. Copies of a line's report, 25 multiples of its seed and bucket, are as many as honest
    users may send by chance. With 32 lines nothing is left out.
    """
    mechanism = _mechanism(buckets=257)
    honest = _reports(mechanism, {b"abcd": 6_000}, 6)
    for lines in (33, 32):
        crafted = np.zeros(lines * 25, dtype=mechanism.report_dtype)
        scale, line = np.tile(np.arange(1, 26), lines), np.repeat(np.arange(lines), 25)
        crafted["seed"][:, :2] = scale[:, np.newaxis]
        crafted["seed"][:, 2:] = 1
        crafted["bucket"] = scale * line % 257
        found = find_codes(mechanism, np.concatenate([honest, crafted]), text=False)
        assert (lines == 33) == found.overfull


@pytest.mark.parametrize(
    "n_users", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (10, 30, 100))]
)
def test_few_users_find_few_false_values(n_users: int) -> None:
    """
    All hold one value, which takes a little off the counts of all others.

    Seeds 0 to 99. About half as many false values are found as are stated at most; 20 more than
    stated with probability below 1e-6.
    """
    spec = PrefixHashing.specify(OpenDraft(encoding="code", code_bytes=1), 0, 8.0)
    mechanism, values = PrefixHashing.of(spec), np.full((n_users, 1), 65)
    false, stated = 0, 0.0
    for seed in range(100):
        reports = mechanism.randomize(values, np.random.default_rng(seed))
        found = find_codes(mechanism, reports, text=False)
        false += len({*found.values} - {b"A"})
        stated += found.expected_false

    assert false < 20 + stated


def test_the_expected_number_of_false_values_is_the_tail_of_all_candidates() -> None:
    """One level of 256 candidates, 3,000 reports; seed 8."""
    spec = PrefixHashing.specify(OpenDraft(encoding="code", code_bytes=1), 257, 6.0)
    mechanism = PrefixHashing.of(spec)
    values = np.full((3_000, 1), 65)
    found = find_codes(mechanism, mechanism.randomize(values, np.random.default_rng(8)), text=False)
    n_usable = len(usable(mechanism, mechanism.randomize(values, np.random.default_rng(8)), 0))
    critical = critical_count(n_usable, 256, 257, last=True)

    assert 256 * stats.binom.sf(critical, n_usable, 1 / 257) == pytest.approx(found.expected_false)
    assert planned_share(spec, n_usable) == pytest.approx(found.sure_share, rel=1e-6)
    least = ((critical + 1) / n_usable - mechanism.q) / (mechanism.p - mechanism.q)
    assert least == pytest.approx(found.least_share)
