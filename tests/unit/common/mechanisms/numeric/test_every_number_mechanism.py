"""What holds for every mechanism for numbers alike."""

import dataclasses
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import ReportError, TaskError, ValueRangeError
from common.mechanisms.base import is_null, null_reports
from common.mechanisms.numeric.number import NumberRequest
from common.mechanisms.reduction import MatchCountReduction
from common.protocols import NumberMechanismName
from common.task.specs import MAX_DIMENSIONS, NumberSpec
from tests.support.mechanisms import NONCE
from tests.support.numbers import (
    EVERY,
    ONE_NUMBER,
    SEVERAL,
    built,
    class_of,
    dimensions_of,
    number_example,
    spec_for,
)
from tests.support.tasks import published

_EVERY = pytest.mark.parametrize("name", EVERY)
_EPSILONS = pytest.mark.parametrize("local_epsilon", [0.05, 0.61, 1.0, 2.4, 5.1, 20.0])
_PRECISE = Context(prec=60)


@_EVERY
@_EPSILONS
def test_a_task_says_all_there_is_to_a_mechanism(
    name: NumberMechanismName, local_epsilon: float
) -> None:
    """Built from its integers it states the same ones, and makes the same reports."""
    spec = spec_for(name, local_epsilon)
    one, other = built(spec), built(spec)
    values = np.random.default_rng(1).uniform(-1, 1, (20, one.dimensions))

    assert (name, 0.0, 10.0) == (spec.name, spec.low, spec.high)
    assert dimensions_of(name) == one.dimensions
    assert one.report_dtype.itemsize == spec.report_bytes
    made = [each.randomize(values, np.random.default_rng(2)).tobytes() for each in (one, other)]
    assert made[0] == made[1]


@_EVERY
@_EPSILONS
def test_what_is_promised_is_kept_and_hardly_more(
    name: NumberMechanismName, local_epsilon: float
) -> None:
    """The odds of an answer, to the power of how many there are, are e^ε to 1e-6 and no more."""
    spec, mechanism = spec_for(name, local_epsilon), number_example(name, local_epsilon)
    if name == "laplace":
        exponent = Decimal(spec.steps) / spec.scale
    else:
        odds = _PRECISE.divide(spec.true_weight, spec.other_weight)
        exponent = _PRECISE.ln(odds) * spec.sampled

    short = Decimal(local_epsilon) - exponent
    assert 0 <= short <= Decimal("5e-3" if name == "laplace" else "1e-6") * Decimal(local_epsilon)
    assert exponent <= Decimal(mechanism.local_epsilon)
    assert mechanism.local_epsilon <= local_epsilon
    assert mechanism.keeps_promise(local_epsilon)
    assert mechanism.keeps_promise(math.inf)
    assert not mechanism.keeps_promise(float(exponent) * (1 - 1e-12))


@_EVERY
@pytest.mark.parametrize(
    "field",
    ["steps", "scale", "reach", "piecewise_weight", "sampled", "projected", "report_bytes"],
)
def test_one_mechanism_has_one_form(name: NumberMechanismName, field: str) -> None:
    """What it does not use must be 0 (1 of sampled), and its reports are as long as they are."""
    spec = spec_for(name)
    used = {
        "laplace": {"steps", "scale"},
        "duchi": set(),
        "piecewise": {"steps", "reach"},
        "hybrid": {"steps", "reach", "piecewise_weight"},
        "harmony": set(),
        "mean-est": set(),
        "multi-hm": {"steps", "reach", "piecewise_weight"},
        "multi-rphm": {"steps", "reach", "piecewise_weight", "projected"},
    }[name]
    changed = dataclasses.replace(spec, **{field: getattr(spec, field) + 2})
    if field in used:
        assert built(changed).report_dtype.itemsize == spec.report_bytes
    else:
        with pytest.raises(TaskError):
            built(changed)


@_EVERY
def test_another_mechanisms_integers_are_refused(name: NumberMechanismName) -> None:
    """The name is among what must agree."""
    other: NumberMechanismName = "duchi" if name != "duchi" else "harmony"
    spec = dataclasses.replace(spec_for(name), name=other)
    with pytest.raises(TaskError, match=f"name is {other}"):
        class_of(name).of_spec(spec, dimensions_of(name), *_more(name))


def _more(name: NumberMechanismName) -> tuple[bytes, ...]:
    return (NONCE,) if name == "multi-rphm" else ()


@pytest.mark.parametrize("name", [name for name in EVERY if name != "laplace"])
@pytest.mark.parametrize("weights", [(0, 0), (1, 0), (5, 5)])
def test_a_number_never_goes_without_noise(
    name: NumberMechanismName, weights: tuple[int, int]
) -> None:
    """Nor at odds that tell nothing."""
    true, other = weights
    spec = dataclasses.replace(spec_for(name), true_weight=true, other_weight=other)
    with pytest.raises(TaskError, match=r"needs local noise|1 <= other < true"):
        built(spec)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "laplace"])
def test_odds_that_could_not_be_drawn_are_refused(name: NumberMechanismName) -> None:
    """The device finds out when it reads the task: sums of weights stay below 2^63."""
    spec = dataclasses.replace(spec_for(name), true_weight=2**63 - 1, other_weight=2**62)
    with pytest.raises(TaskError, match="below 2\\^63"):
        built(spec)


@_EVERY
@pytest.mark.parametrize("local_epsilon", [math.inf, 0.0, -1.0, 20.1, math.nan])
def test_a_promise_out_of_range_cannot_be_wanted(
    name: NumberMechanismName, local_epsilon: float
) -> None:
    """No noise at all among them."""
    with pytest.raises(TaskError, match="local_epsilon"):
        spec_for(name, local_epsilon)


@pytest.mark.parametrize("name", ONE_NUMBER)
def test_one_number_is_one(name: NumberMechanismName) -> None:
    """Neither specified nor built for two."""
    with pytest.raises(TaskError, match="for one number; a person has 2"):
        spec_for(name, dimensions=2)
    with pytest.raises(TaskError, match="for one number; a person has 2"):
        built(spec_for(name), 2)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("dimensions", [0, MAX_DIMENSIONS + 1])
def test_there_are_numbers_but_not_too_many(name: NumberMechanismName, dimensions: int) -> None:
    """At least one."""
    with pytest.raises(TaskError, match=f"dimensions is {dimensions}"):
        spec_for(name, dimensions=dimensions)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_numbers_may_be_one(name: NumberMechanismName) -> None:
    """And then the estimate is of that one; a projection onto one dimension is none."""
    mechanism = number_example(name, dimensions=1)
    rng = np.random.default_rng(3)
    values = np.full((40_000, 1), 0.5)
    found = mechanism.estimate(mechanism.tally(mechanism.randomize(values, rng)))

    # Seven standard errors: 3e-12 over seeds.
    assert abs(found.means[0] - 0.5) < 7 * math.sqrt(mechanism.variance(values)[0])


@_EVERY
@pytest.mark.parametrize("wrong", [1.0000001, -3.25, math.nan, math.inf, -math.inf])
def test_a_number_out_of_range_is_refused_and_not_repeated(
    name: NumberMechanismName, wrong: float
) -> None:
    """Any of a person's, and anybody's."""
    mechanism = number_example(name)
    values = np.zeros((3, mechanism.dimensions))
    values[1, -1] = wrong
    with pytest.raises(ValueRangeError) as refusal:
        mechanism.randomize(values, np.random.default_rng(1))

    assert "a number must lie in the task's range" == str(refusal.value)


@_EVERY
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 6), (1, 3, 5)])
def test_more_or_fewer_numbers_are_refused(
    name: NumberMechanismName, shape: tuple[int, ...]
) -> None:
    """As many as the task says."""
    mechanism = number_example(name)
    with pytest.raises(ValueRangeError, match=f"must hold {mechanism.dimensions} numbers"):
        mechanism.randomize(np.zeros(shape), np.random.default_rng(1))


@_EVERY
@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 8.0])
@given(junk=st.binary(max_size=150))
@settings(max_examples=40, deadline=None)
def test_any_bytes_are_added_up_or_refused(
    name: NumberMechanismName, local_epsilon: float, junk: bytes
) -> None:
    """Reports from anywhere are valid or not; those that are give finite means."""
    mechanism = number_example(name, local_epsilon)
    size = mechanism.report_dtype.itemsize
    reports = np.frombuffer(junk[: len(junk) // size * size], dtype=mechanism.report_dtype)
    valid = mechanism.valid(reports)
    moments = mechanism.estimate(mechanism.tally(reports[valid]))

    assert np.dtype(np.bool_) == valid.dtype
    assert (len(reports),) == valid.shape
    assert not (valid & is_null(reports)).any()
    assert (mechanism.dimensions,) == moments.means.shape == moments.variances.shape
    assert np.isfinite(moments.means).all()
    assert (moments.variances > 0).all()
    if not valid.all():
        with pytest.raises(ReportError):
            mechanism.tally(reports)


@_EVERY
@pytest.mark.parametrize("dimensions", [1, 7, 8, 9])
def test_what_is_made_is_valid_and_padding_is_not(
    name: NumberMechanismName, dimensions: int
) -> None:
    """Over its bytes, at the ends of the range and between them."""
    d = 1 if name in ONE_NUMBER else dimensions
    mechanism, rng = number_example(name, dimensions=d), np.random.default_rng(4)
    values = np.concatenate([np.full((50, d), -1.0), np.full((50, d), 1.0), np.zeros((50, d))])
    made = mechanism.randomize(values, rng)
    reports = np.frombuffer(made.tobytes(), dtype=mechanism.report_dtype)

    assert mechanism.valid(reports).all()
    assert not is_null(reports).any()
    assert not mechanism.valid(null_reports(3, mechanism.report_dtype)).any()
    assert mechanism.tally(made).tolist() == mechanism.tally(reports).tolist()


@_EVERY
def test_reports_add_up_in_parts(name: NumberMechanismName) -> None:
    """What two batches give adds to what both give, in whole numbers."""
    mechanism, rng = number_example(name), np.random.default_rng(5)
    made = mechanism.randomize(rng.uniform(-1, 1, (300, mechanism.dimensions)), rng)
    whole = mechanism.tally(made)

    assert np.dtype(np.int64) == whole.dtype
    assert whole.ndim == 1
    assert whole.tolist() == (mechanism.tally(made[:100]) + mechanism.tally(made[100:])).tolist()


@_EVERY
def test_nobody_says_nothing(name: NumberMechanismName) -> None:
    """No reports: cells of 0, and means that may be off by anything."""
    mechanism = number_example(name)
    none = mechanism.randomize(np.zeros((0, mechanism.dimensions)), np.random.default_rng(6))
    cells = mechanism.tally(none)
    moments = mechanism.estimate(cells)

    assert 0 == len(none)
    assert not cells.any()
    assert not moments.means.any()
    assert np.isinf(moments.variances).all()


@_EVERY
def test_accounting_is_told_no_less_than_the_local_epsilon(name: NumberMechanismName) -> None:
    """And of a match count that its blanket and its signal are all there is."""
    for local_epsilon in (0.3, 1.0, 8.0):
        mechanism = number_example(name, local_epsilon)
        reduction = mechanism.reduction
        assert reduction is not None
        assert mechanism.local_epsilon <= reduction.local_epsilon
        if isinstance(reduction, MatchCountReduction):
            assert reduction.blanket + reduction.signal == pytest.approx(1, abs=1e-12)
            ratio = math.log1p(reduction.answers * reduction.signal / reduction.blanket)
            assert ratio == pytest.approx(local_epsilon, rel=1e-6)


@_EVERY
def test_a_task_about_items_has_no_mechanism_for_numbers(name: NumberMechanismName) -> None:
    """It is refused, by the name of what it has."""
    with pytest.raises(TaskError, match="local-hashing is not one for numbers"):
        class_of(name).of(published().task)


@_EVERY
def test_a_mechanism_is_built_from_a_task(name: NumberMechanismName) -> None:
    """Whose domain_size is how many numbers a person has."""
    spec = spec_for(name, dimensions=dimensions_of(name))
    task = published(domain_size=5, buckets=0).task
    _about_numbers(task, mechanism=spec, domain_size=dimensions_of(name))
    mechanism = class_of(name).of(task)

    assert dimensions_of(name) == mechanism.dimensions
    assert spec.report_bytes == mechanism.report_dtype.itemsize


def _about_numbers(task: Any, **fields: Any) -> None:
    """Put what no task of items may say into one."""
    for field, value in fields.items():
        object.__setattr__(task, field, value)


def test_a_wish_is_for_a_real_number_of_numbers() -> None:
    """Whole, and above 0."""
    with pytest.raises(TaskError, match="dimensions must be a whole number"):
        NumberRequest(name="duchi", dimensions=True, low=0.0, high=1.0, local_epsilon=1.0)


@pytest.mark.parametrize("steps", [-2, 3, 2**21])
def test_a_spec_has_a_grid_with_a_middle_or_none(steps: int) -> None:
    """Even, and not too fine."""
    with pytest.raises(TaskError, match="steps is"):
        dataclasses.replace(spec_for("duchi"), steps=steps)
    assert 0 == NumberSpec(**dataclasses.asdict(spec_for("duchi"))).steps
