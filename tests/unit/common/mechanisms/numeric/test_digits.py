"""Digits of numbers: their points and errors, and tasks that cannot state them."""

import dataclasses
import itertools
import math
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.analyzer.finalize import estimate_result, mixture_of
from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.numeric.digits import Digits
from shuffledp.common.mechanisms.numeric.number import FRACTION_BITS
from shuffledp.common.mechanisms.registry import mean_mechanism_of
from shuffledp.common.mechanisms.views import View
from shuffledp.common.messages.result import Means
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.shuffler_spec import GeometricNoise
from shuffledp.common.task.task import Task
from tests.support.kind_tasks import kind_task

_RADICES: Final = (3, 2, 4)
_POINTS: Final = 24


def _digits(*radices: int, dummies: float = 1.5, dimensions: int = 1) -> Digits:
    views = View.averaging(dummies * dimensions, radices * dimensions)
    return Digits(views=views, dimensions=dimensions)


def _numbers(points: Any, steps: int = _POINTS - 1) -> Any:
    return np.asarray(points, dtype=np.float64)[:, np.newaxis] * 2 / steps - 1


def test_a_point_is_written_in_mixed_radix_the_most_significant_digit_first() -> None:
    """As counting up goes; the number is the sum of its digits times their place values."""
    mechanism, rng = _digits(*_RADICES), np.random.default_rng(1)
    assert _POINTS - 1 == mechanism.steps
    points = _numbers(range(_POINTS))
    found = mechanism.encode(points, rng)

    assert [*itertools.product(*map(range, _RADICES))] == [tuple(row) for row in found.tolist()]
    assert found @ mechanism.place_values - 1 == pytest.approx(points[:, 0])
    assert 2 == pytest.approx(float((np.array(_RADICES) - 1) @ mechanism.place_values))


class _Drawing(np.random.Generator):
    """Draws one integer again and again."""

    def __init__(self, drawn: int) -> None:
        super().__init__(np.random.PCG64(1))
        self.drawn = drawn

    def integers(self, low: Any, high: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Return it for every number."""
        assert (0, 1 << FRACTION_BITS) == (low, high)
        return np.full(options["size"], self.drawn, dtype=np.int64)


@pytest.mark.parametrize("share", [0.25, 0.5, 2.0**-FRACTION_BITS, 1 - 2.0**-FRACTION_BITS])
def test_a_number_between_points_is_rounded_up_by_its_position(share: float) -> None:
    """By exactly as many of the 2^32 draws; the mean of the points is the number."""
    mechanism = _digits(3, 3)
    number, least = _numbers([4 + share], 8), round(share * 2**FRACTION_BITS)
    up, down = (mechanism.encode(number, _Drawing(each)) for each in (least - 1, least))

    assert [[1, 2]] == up.tolist()
    assert [[1, 1]] == down.tolist()


def test_the_ends_are_never_rounded() -> None:
    """Whatever is drawn."""
    mechanism = _digits(3, 3)
    for draw in (0, 2**FRACTION_BITS - 1):
        found = mechanism.encode(np.array([[-1.0], [1.0]]), _Drawing(draw))
        assert [[0, 0], [2, 2]] == found.tolist()


def test_views_of_several_numbers_follow_each_other() -> None:
    """Each number's digits, number by number, and cells view by view."""
    mechanism, rng = _digits(3, 2, dimensions=2), np.random.default_rng(1)
    values = np.concatenate([_numbers([0, 5], 5), _numbers([4, 1], 5)], axis=1)

    assert [[0, 0, 2, 0], [2, 1, 0, 1]] == mechanism.encode(values, rng).tolist()
    assert [0, 3, 7, 8, 2, 4, 5, 9] == mechanism.randomize(values, rng)["item"].tolist()
    for wrong in (values[:, :1], values * 1.5, values * math.nan):
        with pytest.raises(ValueRangeError):
            mechanism.encode(wrong, rng)


@pytest.mark.parametrize("protocol", ["digits", "geo-digits", "vector-digits", "geo-vector-digits"])
def test_the_stated_variance_is_that_of_the_dummies_and_of_the_worst_rounding(
    protocol: str,
) -> None:
    """Users' dummies are counted as they arrived, and shufflers' by their distribution."""
    task, n_users = kind_task(protocol), 400
    mechanism, rng = mean_mechanism_of(task), np.random.default_rng(3)
    assert isinstance(mechanism, Digits)
    values = rng.uniform(-1, 1, (n_users, task.domain_size))
    cells, _ = mechanism.sample_batch(values, rng)
    cells = cells + task.shuffler.draw_dummies(rng)
    moments = mechanism.moments(cells, Mixture(n_real=n_users))

    variance = np.zeros(task.domain_size)
    for view, (number, (radix, unit)) in enumerate(
        itertools.product(range(task.domain_size), ((3, 4 / 5), (2, 2 / 5)))
    ):
        arrived = mechanism.by_view(cells)[view].sum() - n_users
        of_item = task.shuffler.noises[view].moments()[1]
        variance[number] += unit**2 * (
            of_item * radix * (radix**2 - 1) / 12 if of_item else arrived * (radix**2 - 1) / 12
        )
    worst = (1 / 5) ** 2 / n_users
    assert moments.rounding == pytest.approx(worst)
    assert moments.variances == pytest.approx(variance / n_users**2 + worst)
    expected = mechanism.noise_variance(n_users)
    assert moments.variances - worst == pytest.approx(expected, rel=0.25)


def test_a_simulated_batch_counts_the_reports_of_its_users_and_their_dummies() -> None:
    """As the tally of reports one by one does, for the same draws."""
    task = kind_task("digits")
    mechanism, values = mean_mechanism_of(task), np.linspace(-1, 1, 9)[:, np.newaxis]
    reports = mechanism.randomize(values, np.random.default_rng(4))
    cells, number = mechanism.sample_batch(values, np.random.default_rng(4))

    assert cells.sum() == number
    assert ((cells - mechanism.tally(reports)) >= 0).all()
    assert 9 * 2.5 == pytest.approx(number - len(reports), abs=4.5)


def test_a_result_states_the_part_of_rounding_in_the_units_of_the_task() -> None:
    """Half a step of the grid over the root of the number of users."""
    task = kind_task("digits")
    mechanism, rng = mean_mechanism_of(task), np.random.default_rng(5)
    cells, number = mechanism.sample_batch(np.zeros((900, 1)), rng)
    mixture = mixture_of(task, 900, counted=number)
    found = estimate_result(task, mechanism, cells, mixture)

    assert isinstance(found, Means)
    assert 24 / 5 / 2 / 30 == pytest.approx(found.rounding_error)
    assert found.standard_errors[0] > found.rounding_error
    assert abs(found.means[0] - 12) < 6 * found.standard_errors[0]


def _draft(**changes: Any) -> Task:
    return kind_task("digits", numbers=NumberDraft(low=0.0, high=24.0, **changes))


@pytest.mark.parametrize(
    ("radices", "rule"),
    [
        ((), "the number of radices is 0; it must lie between 1 and 16"),
        ((2,) * 17, "the number of radices is 17"),
        ((3, 1), "a radix is 1; it must lie between 2 and 65536"),
        ((2**12, 2**13), "the product of the radices is 33554432"),
    ],
)
def test_digits_that_cannot_be_are_refused_by_name(radices: tuple[int, ...], rule: str) -> None:
    """The message names the rule and the number that broke it."""
    with pytest.raises(TaskError, match=rule):
        _draft(radices=radices)


@pytest.mark.parametrize(
    ("protocol", "changes", "rule"),
    [
        ("piecewise", {"numbers": NumberDraft(radices=(3, 2))}, "2 radices; they are for digits"),
        ("digits", {"buckets": 7}, "does not hash items; buckets is 7"),
        ("digits", {"local_epsilon": 2.0}, "has local_epsilon|local_epsilon is 2.0"),
        ("digits", {"dummies_per_user": 0.0}, "the task would guarantee nothing"),
        ("geo-digits", {"dummies_per_user": 1.0}, "the protocol geo-digits has no dummies"),
    ],
)
def test_a_draft_of_digits_with_what_is_not_theirs_is_refused(
    protocol: str, changes: dict[str, Any], rule: str
) -> None:
    """Local noise, hashing, and dummies of another party."""
    with pytest.raises(TaskError, match=rule):
        kind_task(protocol, **changes)


def test_noise_may_differ_by_view_and_reports_have_their_length() -> None:
    """Each digit has the noise that its place value needs."""
    noises = tuple(
        GeometricNoise(peak=peak, left_weight=7 * 2**27, right_weight=7 * 2**27, most=2 * peak)
        for peak in (150, 170)
    )
    task = kind_task("geo-digits", noises=noises)
    assert noises == task.shuffler.noises
    assert task == Task.from_bytes(task.to_bytes())
    with pytest.raises(TaskError, match="has 3 distributions of noise"):
        kind_task("geo-digits", noises=(*noises, noises[0]))
    longer = dataclasses.replace(task.mechanism, report_bytes=8)
    with pytest.raises(TaskError, match="report_bytes is 8; for this mechanism it must be 4"):
        mean_mechanism_of(dataclasses.replace(task, mechanism=longer))
