import csv
import io
import json
import math
from typing import Final

import pytest

from deploy.simulate.row import ERRORS
from deploy.simulate.table import as_csv
from tests.support.simulated_rows import refused_row, row

_ISSUED: Final = [
    "protocol",
    "target_epsilon",
    "n_users",
    "domain_size",
    "messages_per_user",
    "mse",
    "mse_se",
    "mse_theory",
    "mse_top50",
    "max_error",
    "central_epsilon",
    "local_epsilon",
    "seconds",
]


def test_a_row_has_every_field_that_was_asked_for() -> None:
    """Flat, with a standard error beside each error, and ready for strict JSON."""
    fields = row("od-hp", 0.5, (1e-6, 3e-6)).as_json()

    assert set(_ISSUED) <= set(fields)
    assert {f"{name}_se" for name in ERRORS} <= set(fields)
    assert (2e-6, 1e-6, 2e-6) == pytest.approx(
        (fields["mse"], fields["mse_se"], fields["mse_theory"])
    )
    assert (2.0, 0.5, 1000, 100) == (
        fields["messages_per_user"],
        fields["seconds"],
        fields["n_users"],
        fields["domain_size"],
    )
    json.dumps(fields, allow_nan=False)


def test_a_refused_setting_says_why_and_nothing_else() -> None:
    """No number is made up."""
    row = refused_row("aue")

    assert "it is too much" == row.as_json()["refusal"]
    assert "mse" not in row.as_json()
    assert math.isnan(row.messages_per_user)
    json.dumps(row.as_json(), allow_nan=False)


def test_csv_has_a_line_a_row_and_empty_cells_where_a_setting_was_refused() -> None:
    """Columns are those of all rows together."""
    rows = [refused_row("aue"), row("murs", 0.1, (1e-6,), note="a, note")]
    refused, found = csv.DictReader(io.StringIO(as_csv(rows)))

    assert ("it is too much", "") == (refused["refusal"], refused["mse"])
    assert ("", "1e-06", "a, note") == (found["refusal"], found["mse"], found["note"])
