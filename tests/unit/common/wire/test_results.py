import dataclasses
import functools
import math
import re
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import WireError
from shuffledp.common.messages.result import (
    MISSES,
    BitTable,
    Estimate,
    IntervalTable,
    KeyValues,
    Means,
    Owners,
    ShareTable,
    ShareTables,
)
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import results
from shuffledp.deploy.results.export import estimate_as_json
from shuffledp.deploy.terminal.json_output import dumps
from shuffledp.protos.shuffledp.v1 import analyzer_pb2
from tests.support.ledger_entries import first_entry
from tests.support.results import result as released
from tests.support.tables import table

_DIGEST = TaskDigest(b"d" * 32)
_ENTRY = first_entry()
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
    "tables": ShareTables(
        tables=(ShareTable(shares=np.array([0.5, -0.1, 0.6]), standard_error=0.25),),
        attributes=(
            ShareTable(
                shares=np.array([0.4, 0.6]),
                standard_error=0.125,
                table=IntervalTable.alike(np.linspace(0, 9, len(MISSES))),
            ),
        ),
        mse_theory=0.0625,
    ),
    "bits": BitTable(cohort_sizes=np.array([5, 0]), bit_counts=np.array([[5, 0, 3], [0, 0, 0]])),
}


def _share_table(**changes: Any) -> analyzer_pb2.ShareTable:
    return analyzer_pb2.ShareTable(**{"shares": [1.0], "standard_error": 0.5, **changes})


def _message(estimate: Estimate) -> analyzer_pb2.GetResultResponse:
    message = analyzer_pb2.GetResultResponse()
    results.estimate_to_wire(estimate, message)
    return message


@pytest.mark.parametrize("name", _ESTIMATES)
def test_an_estimate_of_every_kind_is_read_back_as_it_was_written(name: str) -> None:
    """Every field and the kind survive; later iterations of pairs have no owners."""
    written = _ESTIMATES[name]
    later = [dataclasses.replace(written, owners=None)] if isinstance(written, KeyValues) else []
    for estimate in (written, *later):
        found = results.estimate_from_wire(_message(estimate))
        assert type(estimate) is type(found)
        assert dumps(estimate_as_json(estimate)) == dumps(estimate_as_json(found))


def test_a_result_holds_one_estimate() -> None:
    """A result without an estimate, or with two, is refused."""
    both = _message(_ESTIMATES["means"])
    both.bit_table.CopyFrom(_message(_ESTIMATES["bits"]).bit_table)
    with pytest.raises(WireError, match="holds 2 estimates"):
        results.estimate_from_wire(both)
    with pytest.raises(WireError, match="holds 0 estimates"):
        results.estimate_from_wire(analyzer_pb2.GetResultResponse())


@table(
    ("name", "field", "value", "rule"),
    [
        ("means", "means.means", [float("nan")] * 3, "means holds nan"),
        ("means", "means.standard_errors", [-1.0] * 3, "standard_errors holds -1.0"),
        ("pairs", "key_values.means_with_fakes", [float("inf")] * 3, "fakes holds inf"),
        ("pairs", "key_values.reports", [1], "different lengths"),
        ("pairs", "key_values.reports", [2**40] * 3, "a count is"),
        ("pairs", "key_values.owners.means", [float("inf")] * 3, "means holds inf"),
        ("pairs", "key_values.owners.frequency_errors", [1.0], "different lengths"),
        ("tables", "share_tables.tables", [], "the number of tables is 0"),
        ("tables", "share_tables.tables", [_share_table()] * 529, "the number of tables is 529"),
        ("tables", "share_tables.attributes", [_share_table()] * 33, "number of attributes is 33"),
        ("tables", "share_tables.tables", [_share_table(shares=[])], "a table's cells is 0"),
        ("tables", "share_tables.tables", [_share_table(shares=[math.nan])], "shares holds nan"),
        ("tables", "share_tables.tables", [_share_table(standard_error=-1.0)], "error is -1.0"),
        ("tables", "share_tables.tables", [_share_table(standard_error=math.inf)], "error is inf"),
        ("bits", "bit_table.bit_counts", [6, 0, 3, 0, 0, 0], "more reports than its cohort has"),
        ("bits", "bit_table.bit_counts", [5, 0, 3], "3 counts of bits for 2 cohorts"),
        ("bits", "bit_table.bit_counts", [], "the number of bits is 0"),
        ("bits", "bit_table.cohort_sizes", [2**40, 0], "a count is"),
    ],
)
def test_an_impossible_estimate_is_refused(
    name: str, field: str, value: list[Any], rule: str
) -> None:
    """Answers of an analyzer are checked as strictly as requests."""
    message = _message(_ESTIMATES[name])
    *kinds, part = field.split(".")
    sub: Any = functools.reduce(getattr, kinds, message)
    sub.ClearField(part)
    getattr(sub, part).extend(value)
    with pytest.raises(WireError, match=rule):
        results.estimate_from_wire(message)


def test_a_result_survives_the_wire_and_the_file() -> None:
    """An infinite epsilon survives too; a damaged file raises WireError."""
    with pytest.raises(WireError, match="the stored result of this task is damaged"):
        results.result_from_bytes(b"\xff\xff\xff")
    result = released(_DIGEST)
    again = results.result_from_bytes(results.result_to_wire(result).SerializeToString())

    assert result.local_epsilon == again.local_epsilon
    assert result.guarantees == again.guarantees
    assert result.refused == again.refused
    np.testing.assert_array_equal(result.histogram.frequencies, again.histogram.frequencies)
    np.testing.assert_array_equal(result.histogram.refined, again.histogram.refined)


def _set(message: Any, field: str, wrong: object) -> None:
    """Set a field of a result, of its first guarantee, or the first number of a list."""
    if field.startswith("guarantees."):
        setattr(message.guarantees[0], field.removeprefix("guarantees."), wrong)
    elif field in {"frequencies", "standard_errors", "refined"}:
        getattr(message, field)[0] = wrong
    else:
        setattr(message, field, wrong)


@table(
    ("field", "wrong", "said"),
    [
        *(
            (field, figure, re.escape(f"{field} holds {figure}; each must lie"))
            for field, figures in {
                "frequencies": (math.nan, -math.inf, 1.1e30),
                "standard_errors": (math.nan, -0.1, 1.1e30),
                "refined": (math.nan, -0.1, 1.1),
            }.items()
            for figure in figures
        ),
        ("mse_theory", math.nan, "mse_theory is nan; it must lie between 0 and"),
        ("local_epsilon", -1.0, "local_epsilon is -1.0; it must lie between 0 and inf"),
        ("open_seconds", -1.0, "open_seconds is -1.0"),
        ("estimate_seconds", math.inf, "estimate_seconds is inf"),
        ("n_users", 10**9 + 1, "n_users is 1000000001; it may be at most 1000000000"),
        ("mechanism", "{buckets.__class__}", "the mechanism must be one of grr, warner"),
        ("protocol", "od-hp\n", "the protocol must be one of"),
        ("guarantees.epsilon", math.nan, "epsilon is nan; it must lie between 0 and inf"),
        ("guarantees.epsilon", -0.1, "epsilon is -0.1"),
        ("guarantees.delta", math.nan, "delta is nan; it must lie between 0 and 1"),
        ("guarantees.delta", 1.5, "delta is 1.5"),
        ("guarantees.coalition", "nobody", "has 1 guarantees; one must be against"),
    ],
)
def test_a_field_of_a_result_has_a_range(field: str, wrong: object, said: str) -> None:
    """The analyzer is not trusted to send valid figures."""
    message = results.result_to_wire(released(_DIGEST))
    _set(message, field, wrong)
    with pytest.raises(WireError, match=said):
        results.result_from_wire(message)

    message = results.result_to_wire(released(_DIGEST))
    message.guarantees.add(coalition="nobody")
    with pytest.raises(WireError, match="a coalition must be one of analyzer, analyzer\\+users"):
        results.result_from_wire(message)


@pytest.mark.parametrize(
    ("name", "figure"),
    [("epsilon", -math.inf), ("delta", -1.0), ("delta", 1.5), ("composed_epsilon", math.nan)],
)
def test_ledger_entries_are_read_back_and_limited(name: str, figure: float) -> None:
    """The hashes still match; figures out of range and over 10,000 entries are refused."""
    message = results.ledger_to_wire([_ENTRY])
    [again] = results.ledger_from_wire(message)
    assert _ENTRY == again
    assert again.expected_hash() == again.entry_hash

    setattr(message.entries[0], name, figure)
    with pytest.raises(WireError, match=rf"entry 1: {name} is "):
        results.ledger_from_wire(message)
    with pytest.raises(WireError, match="ledger entries is 10001; it may be at most 10000"):
        results.ledger_from_wire(results.ledger_to_wire([_ENTRY] * 10_001))
    with pytest.raises(WireError, match="after is"):
        results.after_from_wire(analyzer_pb2.GetLedgerRequest(after=2**63))
