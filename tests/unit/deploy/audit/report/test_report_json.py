import dataclasses
import json
import math
from typing import Any

import numpy as np

from deploy.audit.finding import Finding
from deploy.audit.report.audit_report import AuditReport
from deploy.audit.report.report_json import as_json
from deploy.terminal.json_output import dumps
from tests.support.audit_reports import (
    demo_report,
    demo_task,
    failed_report,
    finding,
    noiseless_report,
    report_of,
)


def _read(report: AuditReport) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(dumps(as_json(report)), parse_constant=refuse)


def test_a_row_has_the_keys_that_were_asked_for_and_those_of_a_finding() -> None:
    """The former first, in their order."""
    asked = (
        *("scenario", "coalition", "claim_epsilon", "delta", "theorem", "exact_epsilon"),
        *("empirical_epsilon_lower", "ceiling", "confidence", "trials", "statistic", "verdict"),
    )

    for row in _read(demo_report())["findings"]:
        assert asked == tuple(row)[: len(asked)]
        assert {field.name for field in dataclasses.fields(Finding)} == set(row)


def test_the_run_can_be_made_again_from_its_header() -> None:
    """Task, users, mode and seed; and what came of it."""
    read = _read(failed_report())

    assert failed_report().task_digest.hex() == read["task_digest"]
    assert (20_000, "quick", 20_261_121) == (read["n_users"], read["mode"], read["seed"])
    assert read["passed"] is False
    assert "shuffler+analyzer" == read["weakest_coalition"]
    assert len(failed_report().findings) == len(read["findings"])


def test_infinite_numbers_are_text() -> None:
    """Of rows, guarantees, curves and the task."""
    read = _read(noiseless_report())

    assert "inf" == read["findings"][0]["claim_epsilon"] == read["findings"][0]["exact_epsilon"]
    assert "inf" == read["guarantees"][1]["epsilon"]
    assert "inf" == read["local_epsilon"]
    assert "inf" == _read(demo_report())["curves"][1]["points"][-1]["claim"]


def test_what_is_no_number_is_null_and_numpy_is_none() -> None:
    """An hour's run is not lost for one figure that could not be worked out."""
    row = finding(
        expected=math.nan,
        measured=np.float64(0.5),
        trials=np.int64(7),
        roc=((np.float64(0.0), math.nan),),
    )
    [read] = _read(report_of(demo_task(), (row,)))["findings"]

    assert read["expected"] is None
    assert (0.5, 7) == (read["measured"], read["trials"])
    assert [[0.0, None]] == read["roc"]
