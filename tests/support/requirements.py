"""Requirements on a plan, and its designs, for tests."""

import math
from typing import Any

from common.protocols import Kind
from deploy.planning.design import Design
from deploy.planning.requirements import Requirements
from deploy.planning.value_design import ValueDesign


def small_requirements(**changes: Any) -> Requirements:
    """Return what can be planned in a moment: 20,000 users, 30 items; changes are fields of it."""
    fields: dict[str, Any] = {
        "n_users": 20_000,
        "n_min": changes.get("n_users", 20_000),
        "domain_size": 30,
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "messages_cap": 2.0,
    }
    return Requirements(**fields | changes)


def amplified_requirements(**changes: Any) -> Requirements:
    """Return the same without a messages cap, and with a shuffler that may add dummies."""
    return small_requirements(**{"messages_cap": math.inf, "trust": "shuffler-dummies"} | changes)


def value_requirements(kind: Kind = "mean", **changes: Any) -> Requirements:
    """Return the same for other kinds of values: 5,000 users, three numbers or keys."""
    fields: dict[str, Any] = {
        "kind": kind,
        "n_users": 5000,
        "n_min": changes.get("n_users", 4000),
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "domain_size": 3 if kind in {"vector", "key-value"} else 1,
    }
    return Requirements(**fields | changes)


def planned_value_design(found: Design) -> ValueDesign:
    """Return the design of a plan about another kind of values."""
    assert isinstance(found, ValueDesign)
    return found
