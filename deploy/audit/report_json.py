"""An audit as JSON: audit.json, the file that programs read."""

import dataclasses
import math
from typing import Any, Final

import numpy as np

from deploy.audit.finding import Curve, Finding
from deploy.audit.report import AuditReport
from deploy.audit.weakest import weakest_point
from deploy.terminal.json_output import guarantee_as_json, number_or_text

_FIRST: Final = (
    "scenario",
    "coalition",
    "claim_epsilon",
    "delta",
    "theorem",
    "exact_epsilon",
    "empirical_epsilon_lower",
    "ceiling",
    "confidence",
    "trials",
    "statistic",
    "verdict",
)
"""What every row begins with; the other fields of a Finding follow."""


def as_json(report: AuditReport) -> dict[str, Any]:
    """
    Give what was found: the run, `findings`, a list of one object a row, and `curves`.

    Infinite numbers become the text "inf", and what is no number becomes null.
    """
    point = weakest_point(report)
    return {
        "shuffledp": report.version,
        "task_digest": report.task_digest.hex(),
        "protocol": report.task.protocol,
        "kind": report.task.kind,
        "local_epsilon": _plain(report.task.local_epsilon),
        "n_users": report.n_users,
        "mode": report.mode,
        "seed": report.seed,
        "command": report.command,
        "planted": report.planted,
        "idle": list(report.idle),
        "other_kinds": list(report.other_kinds),
        "seconds": _plain(report.seconds),
        "passed": report.passed,
        "tests": report.tests,
        "false_alarm": report.false_alarm,
        "weakest_coalition": point.coalition,
        "guarantees": [guarantee_as_json(guarantee) for guarantee in report.guarantees],
        "findings": [_finding(finding) for finding in report.findings],
        "curves": [_curve(curve) for curve in report.curves],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    fields: dict[str, Any] = _plain(dataclasses.asdict(finding))
    return {name: fields[name] for name in _FIRST} | fields


def _curve(curve: Curve) -> dict[str, Any]:
    fields: dict[str, Any] = _plain(dataclasses.asdict(curve))
    return fields


def _plain(value: Any) -> Any:  # noqa: ANN401  # whatever a row holds
    """Make of a value what JSON can hold."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return number_or_text(value)
