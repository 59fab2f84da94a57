"""Properties of every mechanism for items."""

import math

import numpy as np
import pytest

from shuffledp.common.errors import ReportError, ValueRangeError
from shuffledp.common.mechanisms.base import Mechanism, Mixture
from shuffledp.common.mechanisms.hashing.finite_field import HashFamily
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.hashing.string_hashing import StringHashing
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.support import SupportCounting
from shuffledp.common.mechanisms.weights import ResponseWeights
from tests.support.mechanisms import EXAMPLES, NONCE, RowByRow, Scripted, example
from tests.support.tables import table

_EVERY = table("name", EXAMPLES)


@_EVERY
def test_no_users_give_no_reports(name: str) -> None:
    """All cells are 0, and there are as many as with reports."""
    mechanism, rng = example(name), np.random.default_rng(2)
    nobody = np.zeros(mechanism.domain_size, dtype=np.int64)
    cells = mechanism.sample_cells(nobody, 0, rng)

    assert not cells.any()
    assert cells.shape == mechanism.tally(mechanism.dummies(0, rng)).shape
    assert 0 == len(mechanism.randomize(nobody[:0], rng))


@_EVERY
def test_a_value_outside_the_domain_is_refused(name: str) -> None:
    """The error comes before any draw, and its message names the domain and not the value."""
    mechanism = example(name)
    for value in (-1, mechanism.domain_size, 2**40):
        with pytest.raises(ValueRangeError) as caught:
            mechanism.randomize(np.array([0, value]), Scripted())
        assert f"a value must lie between 0 and {mechanism.domain_size - 1}" == str(caught.value)


def test_the_least_bucket_out_of_range_is_invalid() -> None:
    """For strings, whose seeds are too many to list; the bucket below it is valid."""
    mechanism = example("string-hashing")
    reports = mechanism.dummies(3, np.random.default_rng(5))
    reports["bucket"][:2] = [3, 4]

    assert [True, False, True] == mechanism.valid(reports).tolist()
    with pytest.raises(ReportError, match="not below"):
        mechanism.tally(reports)


def _published(local_epsilon: float, items: int) -> dict[str, float]:
    """Return n·Var at a share of 0, as in [WBLJ17] and [War65]."""
    power, root = math.exp(local_epsilon), math.exp(local_epsilon / 2)
    keep = power / (power + 1)

    def hashing(buckets: int) -> float:
        return (power - 1 + buckets) ** 2 / ((power - 1) ** 2 * (buckets - 1))

    return {
        "warner": keep * (1 - keep) / (2 * keep - 1) ** 2,
        "grr": (items - 2 + power) / (power - 1) ** 2,
        "symmetric-unary": root / (root - 1) ** 2,
        "optimized-unary": 4 * power / (power - 1) ** 2,
        "binary-hashing": (power + 1) ** 2 / (power - 1) ** 2,
        "local-hashing": hashing(3),
        "string-hashing": hashing(4),
    }


@table("local_epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
@table("name", list(_published(1.0, 12)))
def test_the_variance_of_a_rare_item_matches_the_papers(name: str, local_epsilon: float) -> None:
    """They agree except for the rounding of the weights."""
    half = local_epsilon / 2 if name == "symmetric-unary" else local_epsilon
    mechanism = example(name, items=12, odds=ResponseWeights.for_epsilon(half))
    found = mechanism.variance(np.zeros(mechanism.domain_size), Mixture(n_real=1.0))

    assert _published(local_epsilon, 12)[name] == pytest.approx(found[0], rel=1e-7)


@_EVERY
@pytest.mark.parametrize("items", [2, 7, 9])
def test_support_of_single_reports_sums_to_the_counts(name: str, items: int) -> None:
    """The reports that support an item, counted one by one, are those that the analyzer counts."""
    mechanism, rng = example(name, items=items), np.random.default_rng(3)
    values = rng.integers(0, mechanism.domain_size, 300)
    reports = np.concatenate([mechanism.randomize(values, rng), mechanism.dummies(300, rng)])
    counted = [mechanism.supports(reports, item).sum() for item in range(mechanism.domain_size)]
    cells = mechanism.tally(reports)

    if isinstance(mechanism, SquareWave):
        width = mechanism.width
        assert counted == [cells[item : item + width].sum() for item in range(len(counted))]
    else:
        assert isinstance(mechanism, SupportCounting)
        assert counted == mechanism.support_counts(cells).tolist()


@_EVERY
@pytest.mark.parametrize("items", [2, 9])
def test_a_single_report_equals_one_of_many(name: str, items: int) -> None:
    """
    Other tests draw many reports at once, but a device draws one, which must be the same.

    With weights 3 : 1 the first bits decide every coin, so every row makes the same draws.
    """
    mechanism, rows = example(name, items=items), range(200)
    values = np.arange(len(rows)) % mechanism.domain_size
    together = mechanism.randomize(values, RowByRow(rows)), mechanism.dummies(200, RowByRow(rows))
    alone = (
        [mechanism.randomize(values[row : row + 1], RowByRow([row])) for row in rows],
        [mechanism.dummies(1, RowByRow([row])) for row in rows],
    )

    for many, each in zip(together, alone, strict=True):
        assert many.tobytes() == np.concatenate(each).tobytes()


_NOISELESS = ResponseWeights(true=1, other=0)


@pytest.mark.parametrize(
    "mechanism",
    [
        Grr(6, _NOISELESS),
        LocalHashing(6, HashFamily.holding(6, 3, 2), _NOISELESS, NONCE),
        StringHashing(tuple("abcdef"), 4, _NOISELESS, NONCE),
        SquareWave(6, 1, _NOISELESS),
    ],
)
def test_without_noise_a_report_supports_its_value(mechanism: Mechanism) -> None:
    """Nothing is divided by zero, and the blanket is empty."""
    reports = mechanism.randomize(np.arange(6), np.random.default_rng(1))
    reduction, channel = mechanism.reduction, mechanism.channel(0.25)

    assert all(mechanism.supports(reports, item)[item] for item in range(6))
    assert reduction is not None
    assert (0.0, 1.0, math.inf) == (reduction.blanket, reduction.signal, reduction.local_epsilon)
    if channel is not None:
        assert channel.forward(np.eye(6)[5]).sum() == pytest.approx(1)
