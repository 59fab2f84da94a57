import dataclasses
import math
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.key_value.pairs import Pairs
from shuffledp.common.mechanisms.key_value.privkv import STEPS, PrivKv
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.draft import PairDraft
from shuffledp.common.task.specs import KeyValueSpec
from tests.support.exhaustive_delta import pair_distribution
from tests.support.mechanisms import Scripted
from tests.support.tables import table
from tests.support.tasks import published

_2_TO_1: Final = ResponseWeights(true=2, other=1)


def _tiny(fakes: tuple[int, ...] = (), key_true: int = 3) -> PrivKv:
    """Return a mechanism with two keys, four steps, and odds 2 : 1 of a value."""
    return PrivKv(keys=2, steps=4, key_true=key_true, key_other=1, value=_2_TO_1, fakes=fakes)


def _mechanism(epsilon: float, share: float = 0.5, keys: int = 5) -> PrivKv:
    spec = PrivKv.specify(PairDraft(key_share=share), epsilon)
    return PrivKv.of_spec(spec, keys)


@given(st.floats(1e-6, 20.0), st.floats(0.0, 0.999))
def test_a_specification_meets_its_local_epsilon(epsilon: float, share: float) -> None:
    """Every split of the budget is met exactly, and wastes at most 1e-8 of it."""
    mechanism = _mechanism(epsilon, 0.0 if epsilon * share < 1e-7 else share)

    assert mechanism.keeps_promise(epsilon)
    assert mechanism.local_epsilon == pytest.approx(epsilon, abs=1e-8)
    assert mechanism.local_epsilon <= math.nextafter(epsilon, math.inf)
    assert mechanism.local_epsilon == mechanism.reduction.local_epsilon


def test_a_table_and_its_pairs_give_the_same_reports() -> None:
    """The reports are equal if the draws are."""
    rng = np.random.default_rng(2)
    table = np.where(rng.random((100, 5)) < 0.5, rng.uniform(-1, 1, (100, 5)), math.nan)
    mechanism = _mechanism(2.0)
    of_table = mechanism.randomize(table, np.random.default_rng(3))
    of_pairs = mechanism.randomize(Pairs.of_table(table, 5), np.random.default_rng(3))

    assert of_table.tobytes() == of_pairs.tobytes()


@pytest.mark.parametrize("key", [5, 6, 65535])
def test_a_key_that_the_task_does_not_have_is_refused(key: int) -> None:
    """The error comes before anything is drawn."""
    with pytest.raises(ValueRangeError, match="a key must be one of the task's"):
        _mechanism(1.0).randomize(Pairs.of_person({0: 0.5, key: 0.5}, -1.0, 1.0), Scripted())


@table(
    "cells",
    [
        [[0, 0, 0], [0, 0, 0]],
        [[7, 0, 0], [0, 0, 0]],
        [[0, 1, 0], [0, 0, 0]],
        [[4, 1, 0], [1, 3, 0]],
        [[3, 1, 0], [10, 3, 0]],
        [[0, 0, 10**9], [10**9, 0, 0]],
        [[0, 10**9, 0], [3 * 10**8, 10**8, 0]],
    ],
)
@table("key_true", [1, 3])
@table("fakes", [(), (0, 4)])
def test_all_counts_give_finite_estimates(
    cells: list[list[int]], key_true: int, fakes: tuple[int, ...]
) -> None:
    """Means are in -1 .. 1; errors are above 0 and, for means, at most 1."""
    mechanism = _tiny(fakes, key_true)
    found = mechanism.estimate(np.array(cells))
    figures = [(found.means_with_fakes, found.errors_with_fakes)]
    if key_true > 1:
        with np.errstate(all="raise"):
            owners = mechanism.without_fakes(found)
        figures.append((owners.means, owners.mean_errors))

    assert np.isfinite(found.frequencies).all()
    assert (found.frequency_errors > 0).all()
    for means, errors in figures:
        assert (np.abs(means) <= 1).all()
        assert ((errors > 0) & (errors <= 1)).all()


def test_tiny_shares_give_finite_means() -> None:
    """Means stay finite where 1 - φ has no digits left."""
    plain = _tiny().estimate(np.array([[9, 1, 3], [9, 3, 0]]))
    tiny = dataclasses.replace(plain, frequencies=np.array([1e-18, 0.0]))
    with np.errstate(all="raise"):
        found = _tiny().without_fakes(tiny)

    assert [1.0, 0.0] == found.means.tolist()
    assert [1.0, 1.0] == found.mean_errors.tolist()


def test_without_information_estimates_are_the_middle() -> None:
    """Fair coins, no reports and no values give the middle; fakes cannot be removed then."""
    nothing = _tiny().estimate(np.array([[0, 0, 0], [9, 0, 0]]))
    assert (0.5, 0.5) == (nothing.frequencies[0], nothing.frequency_errors[0])
    assert [0.0, 0.0] == nothing.means_with_fakes.tolist()
    assert [1.0, 1.0] == nothing.errors_with_fakes.tolist()
    mechanism = _tiny(key_true=1)
    found = mechanism.estimate(np.array([[5, 1, 4], [0, 10, 0]]))

    assert [0.5, 0.5] == found.frequencies.tolist() == found.frequency_errors.tolist()
    assert [1.0, -1.0] == found.means_with_fakes.tolist()
    with pytest.raises(ValueError, match="key_signal is 0"):
        mechanism.without_fakes(found)


def test_fakes_are_removed_from_expected_counts_exactly() -> None:
    """No bias is left, and errors of shares propagate by the derivative."""
    mechanism = _tiny((1, 3))
    shares, means = np.array([0.25, 0.75]), np.array([0.5, -0.25])
    owners = 9600 * shares
    fakes = np.array([-0.5, 0.5])
    held, absent = (
        2 * np.reshape([*pair_distribution(person, fakes.tolist(), 3, 2).values()], (2, 3))
        for person in (means.tolist(), (math.nan, math.nan))
    )
    cells = owners[:, None] * held + (9600 - owners)[:, None] * absent
    found = mechanism.estimate(np.rint(cells).astype(np.int64))
    share = (1 - shares) / (3 * shares + 1 - shares)
    bias = mechanism.bias_of_fakes(shares, means)
    nearby = dataclasses.replace(found, frequencies=shares + 1e-6)
    slopes = (mechanism.without_fakes(nearby).means - means) / 1e-6
    noisy = dataclasses.replace(found, errors_with_fakes=0 * fakes, frequency_errors=0.01 + shares)

    np.testing.assert_allclose(found.frequencies, shares, rtol=1e-12)
    np.testing.assert_allclose(mechanism.fake_values, fakes)
    np.testing.assert_allclose(mechanism.share_of_fakes(shares), share)
    np.testing.assert_allclose(found.means_with_fakes, means + share * (fakes - means), rtol=1e-12)
    np.testing.assert_allclose(bias, found.means_with_fakes - means)
    np.testing.assert_allclose(mechanism.without_fakes(found).means, means, rtol=1e-12)
    errors = mechanism.without_fakes(noisy).mean_errors
    np.testing.assert_allclose(errors, np.abs(slopes) * (0.01 + shares), rtol=1e-4)


def _spec(**changes: Any) -> KeyValueSpec:
    draft = PairDraft(low=0.0, high=10.0, fakes=(0.0, 5.0, 10.0))
    return dataclasses.replace(PrivKv.specify(draft, 2.0), **changes)


def test_a_mechanism_has_the_integers_of_its_specification() -> None:
    """Fakes are rounded to grid points, and a report is a key and a byte."""
    spec = _spec(fakes=(0.0, 5.0001, 10.0))
    mechanism = PrivKv.of_spec(spec, 3)

    assert (3, STEPS) == (spec.report_bytes, spec.steps)
    assert (0, STEPS // 2 + 1, STEPS) == mechanism.fakes
    assert spec.key_true_weight == mechanism.key_true
    assert spec.key_other_weight == mechanism.key_other
    assert spec.value_true_weight == mechanism.value.true


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"report_bytes": 4}, "report_bytes is 4; for this mechanism it must be 3"),
        ({"key_true_weight": 1, "key_other_weight": 2}, r"key_\w+_weight is"),
        ({"key_true_weight": 1, "key_other_weight": 0}, r"key_\w+_weight is"),
        ({"value_true_weight": 1, "value_other_weight": 1}, r"value_\w+_weight is"),
    ],
)
def test_invalid_specifications_are_refused(changes: dict[str, Any], rule: str) -> None:
    """The message names the number; a key may have a fair coin, a value may not."""
    assert 1 == _spec(key_true_weight=1, key_other_weight=1).key_true_weight
    with pytest.raises(TaskError, match=rule):
        PrivKv.of_spec(_spec(**changes), 3)


@table(
    ("changes", "rule"),
    [
        ({"local_epsilon": math.inf}, "for pairs it must be finite"),
        ({"local_epsilon": 21.0}, "local_epsilon is 21.0"),
        ({"local_epsilon": 0.0}, "local_epsilon is 0.0"),
        ({"key_share": 1.0}, "key_share is 1.0"),
        ({"key_share": -0.1}, "key_share is -0.1"),
        ({"key_share": math.nan}, "key_share is nan"),
        ({"fakes": (0.0, 0.0, 10.5)}, "a fake value is 10.5"),
        ({"low": 10.0}, "low must be below high"),
    ],
)
def test_invalid_requests_are_refused(changes: dict[str, Any], rule: str) -> None:
    """The message names the number, and for a task about items its mechanism."""
    draft = {"low": 0.0, "high": 10.0, **changes}
    local_epsilon = draft.pop("local_epsilon", 2.0)
    with pytest.raises(TaskError, match=rule):
        PrivKv.specify(PairDraft(**draft), local_epsilon)
    with pytest.raises(TaskError, match="is not for pairs"):
        PrivKv.of(published().task)
