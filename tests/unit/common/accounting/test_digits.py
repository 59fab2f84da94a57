"""The privacy of digits of a number: against the exact δ of tiny batches, enumerated."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import pytest

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.accounting.claims import check_coalition_claim, delta_at_claim
from shuffledp.common.accounting.guarantees import claimed_release, guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import PolicyError
from shuffledp.common.messages.guarantee import Waived
from shuffledp.common.task.draft import NumberDraft, RelayDraft, TaskDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import GeometricNoise
from shuffledp.common.task.task import Task
from tests.support.changed_tasks import changed
from tests.support.exhaustive_delta import averaged, beside, excess, histogram_distribution
from tests.support.view_laws import View, digits_of, hidden, largest_delta, noised

_KEY: Final = bytes(31) + b"\x09"
_EPSILONS: Final = (0.0, 0.3, 1.0, 2.5)
_SLACK: Final = 1.03
"""How far a bound may be above the largest δ of two values."""
_STEEP: Final = GeometricNoise(peak=1, left_weight=2**28, right_weight=2**29, most=2)
_FLAT: Final = GeometricNoise(peak=1, left_weight=2**29, right_weight=3 * 2**28, most=3)
_ONE_SIDED: Final = GeometricNoise(peak=0, left_weight=1, right_weight=2**29, most=2)


def _task(radices: tuple[int, ...], **changes: Any) -> Task:
    fields = {
        "protocol": "geo-digits" if "noises" in changes else "digits",
        "local_epsilon": math.inf,
        "numbers": NumberDraft(radices=radices),
        "delta": 0.4,
        "n_min": 400,
        "target_size": 400,
        "deadline": 4_000_000_000,
        "shuffler_key": _KEY,
    }
    draft = TaskDraft(**fields | {"dummies_per_user": 2.0 * ("dummies" not in changes)} | changes)
    if "noises" in changes:
        draft = dataclasses.replace(draft, dummies_per_user=0.0)
    return complete(draft, analyzer_key=_KEY, nonce=bytes(32))


def _few(radices: tuple[int, ...], averages: Sequence[float], users: int, share: float) -> Task:
    """Return a task of few users, whose claims nobody checks."""
    dummies = ViewDummies(averages=tuple(round(each * 2**32) for each in averages))
    fraction = {"assumed_honest_fraction": share}
    return changed(_task(radices), dummies=dummies, n_min=users, target_size=users, **fraction)


@pytest.mark.parametrize(
    ("radices", "averages", "users", "honest", "refused"),
    [
        ((2, 3), (1.2, 0.4), 1, 1, 0),
        ((2, 3), (1.2, 0.4), 2, 2, 0),
        ((3, 2), (0.7, 1.0), 4, 2, 0),
        ((2, 2, 2), (0.5, 1.0, 1.5), 2, 2, 0),
        pytest.param((2, 2, 3), (0.5, 1.0, 0.8), 3, 2, 0, marks=pytest.mark.slow),
        ((2, 3), (2.0, 1.0), 3, 3, 1),
        ((2, 3), (0.6, 0.5), 3, 3, 1),
        pytest.param((2, 2, 2), (1.5, 1.0, 0.5), 4, 3, 1, marks=pytest.mark.slow),
    ],
)
def test_no_claim_of_users_dummies_is_below_the_exact_delta(
    radices: tuple[int, ...], averages: Sequence[float], users: int, honest: int, refused: int
) -> None:
    """
    For every pair of points; nearly reached by one that differs in all digits.

    The analyzer knows the reports of dishonest users. What is refused may be any honest user, or
    any dummies of one view.
    """
    task = _few(radices, averages, users, min(1.0, (honest + 0.5) / users))
    assert isinstance(task.dummies, ViewDummies)
    specs = task.dummies.views
    release = claimed_release(task, users, refused)
    left = [[(honest - refused, 0)] * len(radices)]
    if refused:
        left += [
            [(honest, refused * (view == lost)) for view in range(len(radices))]
            for lost in range(len(radices))
        ]
    for epsilon in _EPSILONS:
        exact = [
            largest_delta(
                {
                    point: [
                        hidden(own, size, spec, *among)
                        for own, size, spec, among in zip(
                            digits_of(point, radices), radices, specs, remaining, strict=True
                        )
                    ]
                    for point in range(math.prod(radices))
                },
                epsilon,
            )
            for remaining in left
        ]
        bound = release.delta(epsilon)
        assert max(exact) <= bound
        if not refused:
            assert bound <= _SLACK * max(exact) + 1e-9


_NOISY: Final = (
    ((2, 3), (_STEEP, _ONE_SIDED), None),
    ((3, 2), (_FLAT, _STEEP), (_ONE_SIDED, _STEEP)),
    pytest.param((2, 2, 2), (_STEEP, _ONE_SIDED, _FLAT), None, marks=pytest.mark.slow),
    pytest.param(
        *((2, 2, 2), (_FLAT, _STEEP, _STEEP), (_STEEP, _FLAT, _STEEP)), marks=pytest.mark.slow
    ),
)


@pytest.mark.parametrize(("radices", "first", "second"), _NOISY)
def test_no_claim_of_shufflers_noise_is_below_the_exact_delta(
    radices: tuple[int, ...],
    first: tuple[GeometricNoise, ...],
    second: tuple[GeometricNoise, ...] | None,
) -> None:
    """
    Of one shuffler or of two, and of either of two alone; whatever is refused or dishonest.

    For every pair of points; nearly reached by one that differs in all digits.
    """
    relay = second and RelayDraft(name="b", key=bytes(31) + b"\x08", noises=second)
    names = {"shuffler_name": "a"} if relay else {}
    task = _task(radices, noises=first, relay=relay, delta=0.9, **names)
    parameters = PrivacyParameters.of(task)
    hops = (first, second) if second else (first,)
    known = [(claimed_release(task, 400, 30), [*zip(*hops, strict=True)])]
    if second:
        known += [
            (parameters.release_by(place), [(each,) for each in hop])
            for place, hop in enumerate(hops)
        ]
    for release, noises in known:
        worlds = {
            point: [
                noised(own, size, each)
                for own, size, each in zip(digits_of(point, radices), radices, noises, strict=True)
            ]
            for point in range(math.prod(radices))
        }
        for epsilon in _EPSILONS:
            exact, bound = largest_delta(worlds, epsilon), release.delta(epsilon)
            assert exact <= bound <= _SLACK * exact + 1e-9


def test_a_number_between_points_is_hidden_as_well_as_the_points() -> None:
    """A device rounds it at random: its views are a mixture of those of two points."""
    radices, averages = (2, 3), (1.2, 0.4)
    task = _few(radices, averages, 2, 1.0)
    assert isinstance(task.dummies, ViewDummies)
    release, specs = claimed_release(task, 2), task.dummies.views

    def world(point: int) -> View:
        views = zip(digits_of(point, radices), radices, specs, strict=True)
        return beside(*(hidden(own, size, spec, 2) for own, size, spec in views))

    between = averaged([(0.3, world(2)), (0.7, world(3))])  # all digits differ
    for other in (world(0), world(5), averaged([(0.5, world(1)), (0.5, world(2))])):
        for epsilon in _EPSILONS:
            assert max(excess([between, other], epsilon), excess([other, between], epsilon)) <= (
                release.delta(epsilon)
            )


def test_claims_of_digits_are_checked_by_devices() -> None:
    """The central claim, and with two shufflers that against either one."""
    noise = GeometricNoise(peak=60, left_weight=2**29, right_weight=2**29, most=150)
    relay = RelayDraft(name="b", key=bytes(31) + b"\x08", noise=noise)
    chained = _task((3, 3), noises=(noise, noise), relay=relay, shuffler_name="a")
    for task in (_task((3, 3), delta=1e-4, dummies_per_user=20.0), chained):
        assert delta_at_claim(task) <= task.delta
    check_coalition_claim(chained)
    low = dataclasses.replace(chained, coalition_epsilon=0.97 * chained.coalition_epsilon)
    with pytest.raises(PolicyError, match="if only one of its two shufflers is honest"):
        check_coalition_claim(low)


@pytest.mark.parametrize("averages", [(1.2, 0.4), (0.4, 1.2)])
@pytest.mark.parametrize("by_length", [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1)])
def test_every_view_has_the_dummies_that_its_own_lengths_show(
    averages: tuple[float, float], by_length: tuple[int, ...]
) -> None:
    """
    The exact δ of two users given the lengths that arrived, for every pair of points.

    A length shows how many of a user's two random dummies there are, not of which view.
    """
    radices, waived = (2, 3), Waived(checks=("lengths",), by_length=by_length)
    task = _few(radices, averages, 2, 1.0)
    assert isinstance(task.dummies, ViewDummies)
    release = PrivacyParameters.of(task, waived).release_of(2, 2, 2)
    chances = [each.extra_probability for each in task.dummies.views]
    more = [each for number, times in enumerate(by_length) for each in [number] * times]
    drawn = [((0, 0), 1.0)]
    for number in more:  # of this user, one random dummy of a view, or none, or of both
        own = [each for each in itertools.product((0, 1), repeat=2) if sum(each) == number]
        odds = [
            math.prod(c if k else 1 - c for c, k in zip(chances, each, strict=True)) for each in own
        ]
        drawn = [
            ((a + c, b + d), chance * odd / sum(odds))
            for (a, b), chance in drawn
            for (c, d), odd in zip(own, odds, strict=True)
        ]
    fixed = [2 * each.per_user for each in task.dummies.views]
    worlds = [
        averaged(
            (
                chance,
                beside(
                    *(
                        histogram_distribution(digit, size, sure + added)
                        for digit, size, sure, added in zip(
                            digits_of(point, radices), radices, fixed, extra, strict=True
                        )
                    )
                ),
            )
            for extra, chance in drawn
        )
        for point in range(6)
    ]
    for epsilon in _EPSILONS:
        exact = max(excess(pair, epsilon) for pair in itertools.permutations(worlds, 2))
        assert exact <= release.delta(epsilon) * (1 + 1e-9)


def test_lengths_that_somebody_sorted_out_are_counted_view_by_view() -> None:
    """Dummies that arrived are as many as their lengths show; of many alike views too."""
    task = _task((2, 3), dummies_per_user=2.5, delta=1e-4)
    many = _task(
        (2, 3), domain_size=10, protocol="vector-digits", dummies_per_user=45.0, delta=1e-4
    )
    for each in (task, many):
        lengths = len(each.lengths)
        shortest = Waived(checks=("lengths",), by_length=(400, *(lengths - 1) * [0]))
        even = Waived(
            checks=("lengths",),
            by_length=tuple(400 // lengths + (k < 400 % lengths) for k in range(lengths)),
        )
        found = [guarantees(each, 400, 0, waived)[0].epsilon for waived in (even, shortest)]
        assert each.central_epsilon / 2 < found[0] < found[1]
