import functools
from typing import Any

import numpy as np
import pytest

from common.errors import WireError
from common.messages.estimate import BitTable, Estimate, KeyValues, Means, Owners
from common.wire.results import estimate_from_wire, estimate_to_wire
from deploy.results.result_json import estimate_as_json
from protos.shuffledp.v1 import analyzer_pb2

_ONES = np.ones(3)
_ESTIMATES: dict[str, Estimate] = {
    "means": Means(
        means=np.array([1.5, -2.0, 1e9]),
        standard_errors=_ONES,
        shrunk=np.zeros(3),
        mse_theory=0.5,
        unbiased=False,
    ),
    "pairs": KeyValues(
        means_with_fakes=np.array([0.0, 3.0, -3.0]),
        errors_with_fakes=_ONES,
        reports=np.array([7, 0, 2]),
        owners=Owners(
            frequencies=np.array([0.5, -0.1, 1.2]),
            frequency_errors=_ONES,
            means=np.array([0.5, 2.0, -2.0]),
            mean_errors=_ONES * 2,
        ),
    ),
    "pairs of a later iteration": KeyValues(
        means_with_fakes=np.array([0.0, 3.0, -3.0]),
        errors_with_fakes=_ONES,
        reports=np.array([7, 0, 2]),
        owners=None,
    ),
    "bits": BitTable(cohort_sizes=np.array([5, 0]), bit_counts=np.array([[5, 0, 3], [0, 0, 0]])),
}


def _message(estimate: Estimate) -> analyzer_pb2.GetResultResponse:
    message = analyzer_pb2.GetResultResponse()
    estimate_to_wire(estimate, message)
    return message


def _fields(estimate: Estimate) -> dict[str, Any]:
    return estimate_as_json(estimate)


@pytest.mark.parametrize("name", _ESTIMATES)
def test_an_estimate_of_every_kind_is_read_back_as_it_was_written(name: str) -> None:
    """Every field of it, and of its own kind."""
    written = _ESTIMATES[name]
    found = estimate_from_wire(_message(written))

    assert type(written) is type(found)
    assert _fields(written) == _fields(found)


def test_a_result_holds_one_estimate() -> None:
    """Neither none nor two of different kinds."""
    both = _message(_ESTIMATES["means"])
    both.bit_table.CopyFrom(_message(_ESTIMATES["bits"]).bit_table)
    with pytest.raises(WireError, match="holds 2 estimates"):
        estimate_from_wire(both)
    with pytest.raises(WireError, match="holds 0 estimates"):
        estimate_from_wire(analyzer_pb2.GetResultResponse())


@pytest.mark.parametrize(
    ("name", "field", "value", "rule"),
    [
        ("means", "means.means", [float("nan")] * 3, "a mean is nan"),
        ("means", "means.standard_errors", [-1.0] * 3, "a standard error is -1.0"),
        ("means", "means.shrunk", [0.0], "different lengths"),
        ("pairs", "key_values.means_with_fakes", [float("inf")] * 3, "a mean is inf"),
        ("pairs", "key_values.errors_with_fakes", [1.0], "different lengths"),
        ("pairs", "key_values.reports", [1], "different lengths"),
        ("pairs", "key_values.reports", [2**40] * 3, "a count is"),
        ("pairs", "key_values.owners.means", [float("inf")] * 3, "a mean is inf"),
        ("pairs", "key_values.owners.frequency_errors", [1.0], "different lengths"),
        ("bits", "bit_table.bit_counts", [6, 0, 3, 0, 0, 0], "more reports than its cohort has"),
        ("bits", "bit_table.bit_counts", [5, 0, 3], "3 counts of bits for 2 cohorts"),
        ("bits", "bit_table.bit_counts", [], "the number of bits is 0"),
        ("bits", "bit_table.cohort_sizes", [2**40, 0], "a count is"),
    ],
)
def test_an_estimate_that_cannot_be_is_refused(
    name: str, field: str, value: list[Any], rule: str
) -> None:
    """What an analyzer says is read as carefully as what anybody says."""
    message = _message(_ESTIMATES[name])
    *kinds, part = field.split(".")
    sub: Any = functools.reduce(getattr, kinds, message)
    sub.ClearField(part)
    getattr(sub, part).extend(value)
    with pytest.raises(WireError, match=rule):
        estimate_from_wire(message)
