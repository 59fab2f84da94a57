"""
Every mechanism over a small domain: its reports' exact distribution, promise and estimate.

The distribution follows from all draws that a device can make; what it must be is computed from the
mechanism's definition. The odds of all weights are 3, so thresholds are multiples of a quarter.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.common.errors import ReportError
from shuffledp.common.mechanisms.base import Mixture, Reports
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.hashing.finite_field import HashFamily
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing, Placement
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric.coded_number import Duchi
from shuffledp.common.mechanisms.numeric.coordinate_sampling import Harmony, SampledCoordinates
from shuffledp.common.mechanisms.numeric.mean_est import MeanEst
from shuffledp.common.mechanisms.numeric.number import NumberMechanism
from shuffledp.common.mechanisms.numeric.piecewise import Hybrid, Piecewise
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.unary import OptimizedUnary, SymmetricUnary
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.specs import MIX_SUM
from tests.support.every_draw import exact_reports
from tests.support.exhaustive_delta import (
    Distribution,
    Message,
    band_distribution,
    corner_distribution,
    duchi_distribution,
    grr_distribution,
    mixed,
    pair_distribution,
    prefix_distribution,
    sampled_distribution,
    unary_distribution,
    uniform_distribution,
)
from tests.support.mechanisms import NONCE
from tests.support.tables import table

_3_TO_1: Final = ResponseWeights(true=3, other=1)
_LOG_3: Final = math.log(3)
_NAN: Final = math.nan
Matrix = NDArray[np.object_]
"""Fractions."""


class _Row(NamedTuple):
    """A mechanism, some values, and the distribution of a value's reports by definition."""

    mechanism: Any
    values: Sequence[Any]
    expected: Callable[[Any], Distribution]
    dummy: Distribution | None = None
    """The distribution of a report without a value, if there are such."""
    odds: int | Fraction = 3
    """The largest ratio of a report's probabilities under two of the values."""
    stated: int = 3
    """The odds that the mechanism states."""
    draws: Mapping[str, Any] = {}
    """See `exact_reports`."""


_UNROUNDED: Final = {"ranges": {2**32: 1}}
"""Nothing is rounded at the ends of a range, nor at points of a grid."""


def _grr(items: int) -> _Row:
    mechanism = Grr(items, _3_TO_1)
    return _Row(
        mechanism, range(items), lambda v: grr_distribution(v, items, _LOG_3), _one_of(items)
    )


def _one_of(places: int) -> Distribution:
    return uniform_distribution([(place,) for place in range(places)])


def _unary(mechanism: Any, p: float, odds: int) -> _Row:
    noise = unary_distribution(None, 4, p, 0.25)
    return _Row(mechanism, (0, 3), lambda v: unary_distribution(v, 4, p, 0.25), noise, odds, odds)


def _square_wave(items: int, reach: int) -> _Row:
    mechanism = SquareWave(items, reach, _3_TO_1)
    expected = partial(band_distribution, points=items, reach=reach)
    return _Row(mechanism, range(items), expected, _one_of(items + 2 * reach))


def _hashing(q: int, t: int) -> _Row:
    """All points of the field but one; digits of seed and point are multiplied."""
    family, reports = HashFamily.holding(q**t - 1, q, t), list(np.ndindex(q**t, q))
    points = Placement(family.points, NONCE)(np.arange(q**t - 1)).tolist()

    def expected(value: int) -> Distribution:
        digits = [points[value] // q**j for j in range(t)]
        return {
            (seed, bucket): (3 if bucket == hashed else 1) / (q**t * (3 + q - 1))
            for seed, bucket in reports
            for hashed in [sum(seed // q**j * digit for j, digit in enumerate(digits)) % q]
        }

    mechanism = LocalHashing(q**t - 1, family, _3_TO_1, NONCE)
    return _Row(mechanism, range(q**t - 1), expected, uniform_distribution(reports))


def _prefixes() -> _Row:
    columns = ((0, -1), (0, 1), (1, 2))
    expected = partial(prefix_distribution, columns=columns, buckets=3)
    return _Row(PrefixHashing(3, columns, _3_TO_1), list(np.ndindex(3, 3, 3)), expected)


def _duchi(number: float) -> Distribution:
    return duchi_distribution(number, _LOG_3)


def _place(steps: int, reach: int, number: float) -> Distribution:
    """Round to the grid, and draw a place."""
    point = (number + 1) * steps / 2
    low = min(math.floor(point), steps - 1)
    up, down = (band_distribution(low + end, steps + 1, reach) for end in (1, 0))
    return mixed(up, down, point - low)


def _piecewise(steps: int, reach: int) -> _Row:
    points = [(number,) for number in np.arange(-1, 1.01, 1 / steps)]
    mechanism = Piecewise(steps, reach, _3_TO_1)
    return _Row(mechanism, points, lambda value: _place(steps, reach, *value))


def _hybrid(steps: int, reach: int) -> _Row:
    """A place three times out of four, and else a bit; codes of places follow the bits."""

    def expected(value: Sequence[float]) -> Distribution:
        drawn = _place(steps, reach, *value).items()
        places: Distribution = {(2 + place,): p for (place,), p in drawn}
        return mixed(places, _duchi(*value), 0.75)

    return _Row(Hybrid(steps, reach, _3_TO_1, MIX_SUM // 4 * 3), _NUMBERS, expected)


_NUMBERS: Final = [(number,) for number in (-1.0, -0.5, 0.0, 0.5, 1.0)]


def _bits(value: Sequence[float], sampled: int = 1) -> Distribution:
    return sampled_distribution([*map(_duchi, value)], sampled)


def _sampled_bits(dimensions: int, sampled: int) -> _Row:
    """Of opposite corners."""
    corners = [(sign,) * dimensions for sign in (-1.0, 1.0)]
    mechanism, odds = SampledCoordinates(dimensions, sampled, Duchi(_3_TO_1)), 3**sampled
    expected = partial(_bits, sampled=sampled)
    return _Row(mechanism, corners, expected, None, odds, odds, _UNROUNDED)


def _mean_est(dimensions: int, *inside: Any) -> _Row:
    """A tie that is drawn again begins with the fifth call."""
    corners = itertools.product((-1.0, 1.0), repeat=dimensions)
    ranges = {2**8: 2**dimensions} | ({} if inside else _UNROUNDED["ranges"])
    draws = {"most_calls": 4, "ranges": ranges}
    return _Row(MeanEst(dimensions, _3_TO_1), [*corners, *inside], corner_distribution, draws=draws)


def _pairs(odds: Fraction, key_true: int, *fakes: int) -> _Row:
    """Two keys, four steps, and odds 2 : 1 of a value; keys without a fake have the middle."""
    value = ResponseWeights(true=2, other=1)
    mechanism = PrivKv(keys=2, steps=4, key_true=key_true, key_other=1, value=value, fakes=fakes)
    people = list(itertools.product((_NAN, -1.0, -0.5, 0.0, 0.5, 1.0), (_NAN, 1.0)))
    held = [fake / 2 - 1 for fake in fakes] or [0.0, 0.0]
    expected = partial(pair_distribution, fakes=held, key_odds=key_true, value_odds=2)
    return _Row(mechanism, people, expected, None, odds, 2 * key_true, _UNROUNDED)


_GRIDS: Final = ((2, 0), (4, 0), (4, 1), (6, 2), (4, 3))
"""Steps and reach."""
_ROWS: Final[dict[str, _Row]] = {
    "warner": _grr(2),
    "grr": _grr(5),
    "symmetric unary": _unary(SymmetricUnary(4, _3_TO_1), 0.75, 9),
    "optimized unary": _unary(OptimizedUnary(4, _3_TO_1), 0.5, 3),
    "binary hashing": _hashing(2, 4),
    "local hashing": _hashing(3, 2),
    **{
        f"square wave {row}": _square_wave(*row) for row in ((2, 0), (2, 1), (5, 0), (5, 2), (7, 1))
    },
    "prefix hashing": _prefixes(),
    "duchi": _Row(Duchi(_3_TO_1), _NUMBERS, lambda value: _duchi(*value)),
    **{f"piecewise {row}": _piecewise(*row) for row in _GRIDS},
    **{f"hybrid {row}": _hybrid(*row) for row in _GRIDS},
    "harmony": _Row(Harmony(3, 1, Duchi(_3_TO_1)), [(-1.0,) * 3, (1.0,) * 3, (1, -1, 0.5)], _bits),
    **{f"bits {row}": _sampled_bits(*row) for row in ((1, 1), (2, 2), (4, 2), (4, 3))},
    **{f"mean-est of {dimensions}": _mean_est(dimensions) for dimensions in range(1, 6)},
    "mean-est inside the square": _mean_est(2, (0.0, 0.5), (-0.5, 1.0)),
    "pairs": _pairs(Fraction(4), 3),
    "pairs of nearly hidden keys": _pairs(Fraction(8, 3), 2),
    "pairs of hidden keys": _pairs(Fraction(2), 1),
    "pairs with a fake at the lower end": _pairs(Fraction(6), 3, 0, 3),
    "pairs with a fake at the upper end": _pairs(Fraction(6), 3, 4, 1),
    "pairs with fakes inside": _pairs(Fraction(24, 5), 3, 1, 3),
}
_EVERY = table("name", _ROWS)
_OF_NUMBERS: Final = (NumberMechanism, SampledCoordinates)


def _message(report: Any, length: int) -> Message:
    """Return the numbers of a report, bit by bit where it has bits; spare bits are 0."""
    fields = [np.ravel(report[field]) for field in report.dtype.names]
    if report.dtype.names == ("bits",):
        fields = [np.unpackbits(fields[0], bitorder="little")]
    numbers = tuple(int(number) for field in fields for number in field)
    assert not any(numbers[length:])
    return numbers[:length]


@cache
def _found(name: str) -> tuple[list[Reports], Matrix]:
    """Return all reports, and the probability of each for every value and for dummies, in rows."""
    mechanism, values, _, dummy, *_, draws = _ROWS[name]
    makers = [partial(mechanism.randomize, np.array([value])) for value in values]
    makers += [] if dummy is None else [partial(mechanism.dummies, 1)]
    exact = [exact_reports(make, **draws) for make in makers]
    every = sorted({report for chances in exact for report in chances})
    reports = [np.frombuffer(report, dtype=mechanism.report_dtype) for report in every]
    return reports, np.array(
        [[chances.get(one, Fraction(0)) for one in every] for chances in exact]
    )


@pytest.mark.parametrize("name", _ROWS)
def test_reports_have_the_distribution_of_their_definition(name: str) -> None:
    """For every value, and for dummies."""
    row, (reports, chances) = _ROWS[name], _found(name)
    laws = [*map(row.expected, row.values), *([] if row.dummy is None else [row.dummy])]
    for expected, own in zip(laws, chances, strict=True):
        messages = [_message(report[0], len(next(iter(expected)))) for report in reports]
        found = {message: float(p) for message, p in zip(messages, own, strict=True) if p}
        assert expected == pytest.approx(found, rel=1e-12)


@_EVERY
def test_a_report_is_valid_exactly_if_it_can_be_sent(name: str) -> None:
    """Against every possible report with one bit flipped; no other report is counted."""
    mechanism, (reports, _) = _ROWS[name].mechanism, _found(name)
    possible = {report.tobytes() for report in reports}
    rows = np.concatenate(reports).view(np.uint8).reshape(len(reports), -1)
    for place, bit in np.ndindex(rows.shape[1], 8):
        flipped = rows.copy()
        flipped[:, place] ^= 1 << bit
        again = flipped.view(mechanism.report_dtype)[:, 0]
        valid = [report.tobytes() in possible for report in again]
        assert valid == mechanism.valid(again).tolist()
        if not all(valid):
            with pytest.raises(ReportError):
                mechanism.tally(again)


@_EVERY
def test_no_two_values_differ_by_more_than_the_promise(name: str) -> None:
    """The largest ratio of all reports' probabilities is as known, and at most what is stated."""
    row, (_, chances) = _ROWS[name], _found(name)
    own, stated = chances[: len(row.values)], math.log(row.stated)

    assert row.odds == max(own.max(axis=0) / own.min(axis=0)) <= row.stated
    assert stated == pytest.approx(row.mechanism.local_epsilon, abs=1e-12)
    assert row.mechanism.keeps_promise(stated + 1e-12)
    assert not row.mechanism.keeps_promise(stated - 1e-12)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in _ROWS.items()
        if isinstance(row.mechanism.reduction, MatchCountReduction)
    ],
)
def test_a_report_is_drawn_from_the_blanket_or_given_support(name: str) -> None:
    """Blanket and lift of each value that supports a set of reports; the least collision of two."""
    row, (reports, chances) = _ROWS[name], _found(name)
    reduction = row.mechanism.reduction
    blanket = np.full(len(reports), Fraction(1, len(reports))) if row.dummy is None else chances[-1]
    densities = [own / blanket for own in chances]
    # Other values are mixtures of those with two densities, as far apart as can be.
    pure = [one for one in densities if len({*one}) == 2 and one.max() == row.odds * one.min()]
    supports = [density > density.min() for density in pure]
    both = [(blanket * one * two).sum() for one, two in itertools.combinations(supports, 2)]
    lift = reduction.answers * reduction.signal

    for density, support in zip(pure, supports, strict=True):
        assert reduction.blanket == pytest.approx(float(density.min()))
        assert reduction.blanket + lift == pytest.approx(float(density.max()))
        assert 1 / reduction.answers == pytest.approx(float(blanket[support].sum()))
    assert reduction.collision == pytest.approx(float(min(both)) * reduction.answers)


@table("name", [name for name, row in _ROWS.items() if row.dummy is not None])
def test_shares_are_unbiased_and_vary_as_stated(name: str) -> None:
    """By the exact moments of one report's estimate; for 40 users and 30 dummies."""
    row, (reports, chances) = _ROWS[name], _found(name)
    mechanism, p, held = row.mechanism, chances.astype(np.float64), np.array(row.values)
    z = np.array([mechanism.debias(mechanism.tally(one), Mixture(n_real=1.0)) for one in reports])
    users = np.random.default_rng(4).multinomial(40, np.full(len(held), 1 / len(held)))
    spread = [*users, 30] @ (p @ z**2 - (p @ z) ** 2)
    shares = np.bincount(held, weights=users / 40, minlength=mechanism.domain_size)
    found = mechanism.variance(shares, Mixture(n_real=40, n_dummies=30))

    assert np.eye(mechanism.domain_size)[held] == pytest.approx(p[:-1] @ z, abs=1e-9)
    assert spread / 40**2 == pytest.approx(found, rel=1e-9)


@table(
    "name", [name for name, row in _ROWS.items() if row.dummy is not None and "unary" not in name]
)
def test_a_channel_is_the_distribution_of_cells(name: str) -> None:
    """Of a mixture of users' own reports and dummies; the adjoint is its transpose."""
    row, (reports, chances) = _ROWS[name], _found(name)
    mechanism, rng = row.mechanism, np.random.default_rng(4)
    truth, channel = rng.dirichlet(np.ones(len(row.values))), mechanism.channel(2 / 3)
    cells = np.array([mechanism.tally(report) for report in reports])
    expected = np.append(2 / 3 * truth, 1 / 3) @ chances.astype(np.float64) @ cells
    weights = rng.random(len(expected))

    assert expected == pytest.approx(channel.forward(truth), rel=1e-9)
    assert weights @ expected == pytest.approx(channel.adjoint(weights) @ truth)


@table("name", [name for name, row in _ROWS.items() if isinstance(row.mechanism, _OF_NUMBERS)])
def test_means_are_unbiased_and_vary_as_stated(name: str) -> None:
    """By the exact moments of one report's estimate."""
    row, (reports, chances) = _ROWS[name], _found(name)
    mechanism, p, values = row.mechanism, chances.astype(np.float64), np.array(row.values)
    z = np.array([mechanism.estimate(mechanism.tally(one)).means for one in reports])
    stated = np.array([mechanism.variance(value[np.newaxis]) for value in values])

    assert values == pytest.approx(p @ z, abs=1e-12)
    assert stated == pytest.approx(p @ z**2 - (p @ z) ** 2, rel=1e-12, abs=1e-12)
