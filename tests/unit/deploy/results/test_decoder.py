import dataclasses
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.errors import ReportError, SettingsError, TaskError, ValueRangeError
from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.deploy.results.decoder import _fit_half, decode
from shuffledp.deploy.results.regression import Regression, TrueBitCounts, independent

_PEOPLE: Final = np.array([3, 2, 1, 0])
_NAMES: Final = ("a", "b", "c", "nobody's")


def _rappor(bits: int = 32, hashes: int = 2, cohorts: int = 16, *, f: float = 0.5) -> Rappor:
    spec = Rappor.specify(bits=bits, hashes=hashes, cohorts=cohorts, f=f, p=0.25, q=0.75)
    return Rappor.of(spec, ())


def _labelled(bits: int) -> Rappor:
    labels = [f"v{place}" for place in range(bits)]
    return Rappor.of(Rappor.specify(bits=bits, f=0.5, p=0.25, q=0.75, encoding="labels"), labels)


def _expected(rappor: Rappor, people: Counts, names: tuple[str, ...]) -> Counts:
    """Return the expected cells, whole numbers if f = 0 and 64 divides the numbers of people."""
    spec = rappor.spec
    each = people // spec.cohorts
    true = np.zeros((spec.cohorts, spec.bits))
    for number, where in enumerate(rappor.set_bits(names)):
        mine = np.zeros_like(true)
        np.put_along_axis(mine, where, float(each[number]), axis=1)
        true += mine
    sizes = np.full(spec.cohorts, each.sum())
    shown = rappor.unset_probability * sizes[:, None] + (
        true * (rappor.set_probability - rappor.unset_probability)
    )
    assert (shown % 1 == 0).all()
    return np.concatenate([sizes, shown.ravel().astype(np.int64)])


def _sampled(rappor: Rappor, held: int, absent: int, n_users: int) -> tuple[Counts, list[str]]:
    people = np.full(held, n_users // held)
    names = [f"v{number}" for number in range(held)]
    cells = rappor.sample_cells(people, names, np.random.default_rng(1))
    return cells, names + [f"w{number}" for number in range(absent)]


@pytest.mark.parametrize("hashes", [1, 2, 4])
def test_expected_cells_are_decoded_exactly(hashes: int) -> None:
    """Every share is the true one, and nothing is unexplained."""
    rappor = _rappor(hashes=hashes, f=0)
    people = _PEOPLE * 64
    found = decode(rappor, _expected(rappor, people, _NAMES), _NAMES)

    assert [0.5, 1 / 3, 1 / 6, 0] == pytest.approx(found.shares.tolist(), abs=1e-10)
    assert 0 == pytest.approx(found.unexplained, abs=1e-8)


@pytest.mark.parametrize("hashes", [1, 2])
def test_unlisted_strings_are_not_attributed_to_candidates(hashes: int) -> None:
    """
    Shares are off by less than .003 if two fifths of the people hold 1,024 unlisted strings.

    Attributed to the candidates, these would add several percent to each. The rest is due to the
    random hashes of 1,024 strings.
    """
    rappor = _rappor(hashes=hashes, f=0)
    people = np.concatenate([_PEOPLE * 2**14, np.full(1024, 64)])
    names = (*_NAMES, *(f"other {number}" for number in range(1024)))
    found = decode(rappor, _expected(rappor, people, names), _NAMES)
    alone = _PEOPLE * 2**14 / people.sum()

    assert [0.3, 0.2, 0.1, 0] == pytest.approx(alone.tolist())
    np.testing.assert_allclose(found.shares, alone, atol=0.003)
    assert 0.4 == pytest.approx(found.unexplained, abs=0.006)


def _dense(bit_counts: TrueBitCounts) -> NDArray[np.float64]:
    """Return the regression's matrix and target, with rows divided by √N_j."""
    cohorts, bits = bit_counts.target.shape
    columns = np.zeros((cohorts, bits, bit_counts.n_candidates))
    for candidate, where in enumerate(bit_counts.positions):
        for cohort, places in enumerate(where):
            columns[cohort, places, candidate] = 1
    columns -= bit_counts.baseline[:, None]
    roots = np.sqrt(bit_counts.sizes)[:, None]
    rows = np.concatenate(
        [columns * roots[..., None], (bit_counts.target / roots)[..., None]], axis=2
    )
    return rows.reshape(cohorts * bits, -1)


def test_the_joint_fit_is_weighted_least_squares() -> None:
    """Shares equal numpy's solution, and so do the residuals of a fit without a candidate."""
    rappor = _rappor(bits=16, cohorts=8)
    cells, names = _sampled(rappor, 5, 3, 10_000)
    bit_counts = TrueBitCounts.of(rappor, cells, names)
    rows = _dense(bit_counts)
    expected, *_ = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)
    everybody = np.arange(8)
    regression = Regression.fit(bit_counts, everybody)
    alone = regression.alone(everybody)

    np.testing.assert_allclose(regression.shares, expected, rtol=1e-9)
    np.testing.assert_allclose(alone.products / alone.weights, expected, rtol=1e-9)
    for candidate in range(8):
        others = np.delete(everybody, candidate)
        without = Regression.fit(bit_counts, others)
        np.testing.assert_allclose(
            alone.residuals[:, candidate], without.residual, rtol=1e-8, atol=1e-6
        )
        single = without.alone(np.array([candidate]))
        assert single.products[0] / single.weights[0] == pytest.approx(expected[candidate])
        np.testing.assert_allclose(
            single.columns[:, 0], alone.columns[:, candidate], rtol=1e-8, atol=1e-9
        )


def test_the_variance_of_a_bit_is_that_of_noise_and_of_the_draw_of_its_cohort() -> None:
    """If 120 of 400 people set the bit, the number in a cohort is hypergeometric."""
    rappor = _rappor(bits=4, hashes=1, cohorts=4, f=0)
    sizes = np.array([90, 100, 100, 110])
    cells = np.concatenate([sizes, np.full(16, 40)])
    bit_counts = TrueBitCounts.of(rappor, cells, ["a"])
    expected = np.outer(sizes, [0.3, 0.0, 1.0, -0.1])
    found = bit_counts.variances(expected)

    noise = sizes * 0.25 * 0.75 / 0.5**2
    drawn = stats.hypergeom.var(400, 120, sizes)
    assert (noise + drawn).tolist() == pytest.approx(found[:, 0].tolist())
    for bit in (1, 2, 3):
        assert noise.tolist() == pytest.approx(found[:, bit].tolist())


def test_a_half_is_fitted_with_the_candidates_that_the_other_half_chose() -> None:
    """Other counts in the half's cohorts do not change the selection."""
    rappor = _rappor(bits=32, hashes=1, cohorts=16)
    cells, names = _sampled(rappor, 5, 50, 40_000)
    bit_counts = TrueBitCounts.of(rappor, cells, names)
    half = np.arange(16) % 2 == 0
    turned = np.where(half[:, None], bit_counts.estimates[:, ::-1], bit_counts.estimates)
    chosen, again = (
        set(_fit_half(each, half).fitted)
        for each in (bit_counts, dataclasses.replace(bit_counts, estimates=turned))
    )
    others = set(_fit_half(bit_counts, ~half).fitted)

    assert set(range(5)) < chosen
    assert chosen == again
    assert chosen != others


def test_few_candidates_are_fitted_together_and_many_are_chosen_from() -> None:
    """With up to an eighth of the bits of all cohorts and with more, all have good estimates."""
    rappor = _rappor(bits=16, hashes=1, cohorts=64)
    cells, names = _sampled(rappor, 5, 124, 400_000)
    few, many = decode(rappor, cells, names[:128]), decode(rappor, cells, names)

    assert np.isfinite(many.share_errors).all()
    for found in (few, many):
        assert found.detected[:5].all()
        assert not found.detected[5:].any()
        assert (found.detected == (found.p_values <= 0.05 / len(found.p_values))).all()
        assert (np.abs(found.shares[:5] - 0.2) < 5 * found.share_errors[:5]).all()
        assert abs(found.unexplained) < 5 * found.unexplained_error


@pytest.mark.parametrize(("p", "q"), [(0.001, 0.7), (0.018, 0.5), (0.25, 0.75)])
def test_intervals_of_labels_cover_every_share(p: float, q: float) -> None:
    """
    With at least 95 % probability, summed exactly over the counts of 50 users' bits.

    In the first case normal intervals cover the share of one user with .71.
    """
    counts = np.arange(51)
    labels = [f"v{count}" for count in counts]
    spec = Rappor.specify(bits=51, f=0, p=p, q=q, encoding="labels")
    rappor = Rappor.of(spec, labels)
    low, high = decode(rappor, np.append(50, counts), labels).interval(0.95)
    for holders in range(51):
        chances = np.convolve(
            stats.binom.pmf(counts[: holders + 1], holders, rappor.set_probability),
            stats.binom.pmf(counts[: 51 - holders], 50 - holders, rappor.unset_probability),
        )
        share = holders / 50
        assert chances[(low <= share + 1e-12) & (share - 1e-12 <= high)].sum() >= 0.95


def test_labels_have_bits_of_their_own() -> None:
    """
    Each share is the debiased count of its bit, and p-values are those of a binomial count.

    If every label is a candidate, nothing is unexplained, and the sum of shares is 1 plus noise.
    """
    rappor = _labelled(5)
    people = np.array([4000, 2000, 1000, 0, 800])
    names = [f"v{place}" for place in range(5)]
    cells = rappor.sample_cells(people, names, np.random.default_rng(3))
    unset, spread = rappor.unset_probability, rappor.set_probability - rappor.unset_probability
    own = (cells[1:] / 7800 - unset) / spread
    every, some = decode(rappor, cells, names), decode(rappor, cells, names[3::-1])

    assert own.tolist() == pytest.approx(every.shares.tolist())
    assert abs(1 - own.sum()) > 1e-3
    assert (True, 0.0, 0.0) == (every.exhaustive, every.unexplained, every.unexplained_error)
    assert not some.exhaustive
    assert [stats.binom.sf(count - 1, 7800, unset) for count in cells[1:]] == pytest.approx(
        every.p_values.tolist()
    )
    assert own[3::-1].tolist() == pytest.approx(some.shares.tolist())
    assert 1 - own[:4].sum() == pytest.approx(some.unexplained)
    assert some.unexplained_error > 0
    assert [True, True, True, False, True] == every.detected.tolist()
    deviation = np.sqrt(unset * (1 - unset) / 7800) / spread
    assert deviation == pytest.approx(every.share_errors[3], rel=0.01)


def test_positions_with_the_same_bits_are_the_same_candidate() -> None:
    """Positions 1, 1, 2 and 1, 2, 2 are the same pair of bits."""
    bit_counts = TrueBitCounts.of(
        _rappor(bits=4, hashes=3, cohorts=1), np.array([10, 1, 2, 3, 4]), ["a"]
    )
    positions = np.array([[[1, 1, 2]], [[1, 2, 2]]])
    both = dataclasses.replace(bit_counts, positions=positions)

    assert [[0, 0], [1, 1], [1, 1], [0, 0]] == both.incidence.toarray().tolist()
    assert 1 == len(independent(both, np.arange(2)))


def test_only_many_candidates_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install."""
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    rappor = _rappor()
    cells, names = _sampled(rappor, 3, 3, 10_000)

    assert decode(rappor, cells, names).detected.shape == (6,)
    with pytest.raises(SettingsError, match=r"needs scikit-learn: .*shuffledp\[research\]"):
        decode(rappor, cells, names, most_together=0)


_CELLS: Final = np.array([99, *range(40, 56)])
_ONES: Final = np.ones(16 * 33, dtype=np.int64)


@pytest.mark.parametrize(
    ("rappor", "cells", "candidates", "error", "sentence"),
    [
        (_rappor(), 0 * _ONES, "a", ReportError, "there are 0 reports"),
        (_rappor(), _ONES, "", TaskError, "there are no candidates"),
        (_rappor(), _ONES, "aba", TaskError, "1 of 3 candidates .* such as 'a' and 'a'"),
        (_rappor(16, 1, 1), _CELLS, "abcdefghijklmnopqr", TaskError, "in every cohort"),
        (_rappor(16, 1, 1), _CELLS, "abd", TaskError, "one cohort of 16 bits cannot tell 3"),
        (_rappor(16, 2, 1), _CELLS, ["x" * 257], ValueRangeError, "at most 256 bytes"),
        (_labelled(16), _CELLS, "w", ValueRangeError, "one of the task's labels"),
    ],
)
def test_reports_and_candidates_that_cannot_be_decoded_are_refused(
    rappor: Rappor, cells: Counts, candidates: Sequence[str], error: type[Exception], sentence: str
) -> None:
    """The message names the rule."""
    with pytest.raises(error, match=sentence):
        decode(rappor, cells, candidates)
