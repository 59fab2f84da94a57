"""Wishes of an operator, for tests."""

from typing import Any

from deploy.planning.requirements import Wishes


def small_wishes(**changes: Any) -> Wishes:
    """Give what can be planned in a moment: 20,000 users, 30 items; changes are fields of it."""
    fields: dict[str, Any] = {
        "n_users": 20_000,
        "n_min": changes.get("n_users", 20_000),
        "domain_size": 30,
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "messages_cap": 2.0,
    }
    return Wishes(**fields | changes)
