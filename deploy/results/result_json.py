"""A result as JSON: the file that programs read."""

import dataclasses
from typing import Any

import numpy as np

from common.messages.estimate import Estimate
from common.messages.result import Result
from common.protocols import protocol_named
from deploy.terminal.json_output import guarantee_as_json, number_or_text


def as_json(result: Result) -> dict[str, Any]:
    """Return a result's fields; infinite numbers become the text "inf"."""
    return {
        "task_digest": result.task_digest.hex(),
        "protocol": result.protocol,
        "mechanism": {
            "name": result.mechanism,
            "buckets": result.buckets,
            "local_epsilon": number_or_text(result.local_epsilon),
        },
        "n_users": result.n_users,
        "n_reports": result.n_reports,
        "n_dummies": result.n_dummies,
        "refused": dict(result.refused),
        "sentinels": {
            "planted": result.n_sentinels,
            "missing": result.n_sentinels_missing,
            "repeated": result.n_sentinels_repeated,
        },
        "kind": protocol_named(result.protocol).kind,
        **estimate_as_json(result.estimate),
        "guarantees": [guarantee_as_json(guarantee) for guarantee in result.guarantees],
        "published_claim": result.published_claim,
        "seconds": {"open": result.open_seconds, "estimate": result.estimate_seconds},
    }


def estimate_as_json(estimate: Estimate) -> dict[str, Any]:
    """Return every field of an estimate, under its name in common/messages/estimate.py."""
    fields: dict[str, Any] = dataclasses.asdict(estimate)
    return {name: _listed(value) for name, value in fields.items()}


def _listed(value: Any) -> Any:  # noqa: ANN401  # of an estimate's field
    if isinstance(value, dict):
        return {name: _listed(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
