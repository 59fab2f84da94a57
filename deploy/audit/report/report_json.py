"""An audit as JSON: audit.json, for programs."""

import dataclasses
import math
from typing import Any, Final

import numpy as np

from deploy.audit.report.audit_report import AuditReport
from deploy.audit.report.recommendations import weakest_point
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
"""The first fields of every finding; its other fields follow."""


def as_json(report: AuditReport) -> dict[str, Any]:
    """
    Return the run, its `findings` and its `curves`.

    Infinite numbers become the text "inf", and NaN becomes null.
    """
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
        "planted": "",  # readers of older files expect it
        "idle": list(report.idle),
        "other_kinds": list(report.other_kinds),
        "seconds": _plain(report.seconds),
        "passed": report.passed,
        "tests": report.tests,
        "false_alarm": report.false_alarm,
        "weakest_coalition": weakest_point(report).coalition,
        "guarantees": [guarantee_as_json(guarantee) for guarantee in report.guarantees],
        "findings": [
            dict.fromkeys(_FIRST) | _plain(dataclasses.asdict(finding))
            for finding in report.findings
        ],
        "curves": [_plain(dataclasses.asdict(curve)) for curve in report.curves],
    }


def _plain(value: Any) -> Any:  # noqa: ANN401  # any field's
    """Convert a value to JSON's types."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return number_or_text(value)
