"""Planning requirements and designs for tests."""

import dataclasses
import math
from typing import Any

from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.protocols import Kind
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.planner import search
from shuffledp.lab.planning.requirements import Requirements


def small_requirements(**changes: Any) -> Requirements:
    """Return requirements that are fast to plan: 20,000 users, 30 items; some fields changed."""
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
    """Return these without a messages cap, and with a shuffler that may add dummies."""
    return small_requirements(**{"messages_cap": math.inf, "trust": "shuffler-dummies"} | changes)


def value_requirements(kind: Kind = "mean", **changes: Any) -> Requirements:
    """Return requirements for other kinds: 5,000 users, and one number or three numbers or keys."""
    fields: dict[str, Any] = {
        "kind": kind,
        "n_users": 5000,
        "n_min": changes.get("n_users", 4000),
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "domain_size": 3 if kind in {"vector", "key-value"} else 1,
    }
    return Requirements(**fields | changes)


def designed(protocol: str, target: Requirements) -> Design:
    """Return the design of one protocol."""
    return search(dataclasses.replace(target, protocol=protocol)).designs[0]


def reduction_of(found: Design) -> MatchCountReduction:
    """Return the reduction of a design for items."""
    reduction = found.parameters.match_count
    assert reduction is not None
    return reduction


def ratio_of_mean(found: Design) -> float:
    """Return a design's error of means in -1 .. 1, divided by that of central Gaussian noise."""
    target = found.target
    mu = gaussian_mu(target.central_epsilon, target.delta)
    return found.mse * (mu * target.n_users) ** 2 / (4 * target.domain_size)
