"""Requirements: their rules, and hints if an error cannot be reached."""

import math
import re
from typing import Any

import pytest

from shuffledp.common.errors import PlanError, UsageError
from shuffledp.lab.planning.planner import plan
from tests.support.requirements import small_requirements


def _least_error(**changes: Any) -> float:
    found = plan(small_requirements(**changes))
    return found.best.mse


@pytest.mark.slow
def test_an_unreachable_error_comes_with_what_would_reach_it() -> None:
    """A tenth more than the stated users or local cap reaches it; a tenth less does not."""
    fields = {"local_cap": 4.0, "domain_size": 400}
    target = 0.5 * _least_error(**fields)
    with pytest.raises(PlanError, match="cannot be reached") as refused:
        plan(small_requirements(**fields, max_mse=target))

    found = re.search(
        r"limited by local cap; .*a local cap of about (\S+) or about (\S+) users",
        str(refused.value),
    )
    assert found is not None
    cap, users = float(found[1]), int(found[2].replace(",", ""))
    assert _least_error(**fields, n_users=users * 11 // 10) <= target
    assert _least_error(**fields, n_users=users * 9 // 10) > target
    assert _least_error(**fields | {"local_cap": 1.1 * cap}) <= target
    assert _least_error(**fields | {"local_cap": 0.9 * cap}) > target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_users": 0, "n_min": 1}, "users is 0"),
        ({"n_min": 20_001}, "n_min is 20001 and n_users is 20000"),
        ({"n_min": 0}, "n_min is 0"),
        ({"domain_size": 1}, "domain_size is 1"),
        ({"central_epsilon": 0.0}, "central_epsilon is 0"),
        ({"central_epsilon": math.nan}, "central_epsilon is nan"),
        ({"delta": 0.0}, "delta is 0"),
        ({"delta": 1e-13, "rounds": 2}, "over several rounds"),
        ({"local_cap": 1e-9}, "must lie between 1e-06 and inf"),
        ({"messages_cap": 0.5}, "messages_cap is 0.5; it must lie between 1 and inf"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": 1000, "central_epsilon": 1e-5}, "rounds must be at most 10"),
        ({"honest_fraction": 0.0}, "honest_fraction is 0"),
        ({"max_mse": math.nan}, "max_mse is nan; it must lie between 0 and inf"),
        ({"honest_fraction": 0.3, "n_min": 3}, "n_min must be at least 4"),
        ({"head": (0.7, 0.7)}, "sum to 1.4"),
        ({"head": (0.0,)}, "the head has 1 shares that sum to 0; at most"),
        ({"head": (0.01,) * 31}, "the head has 31 shares"),
    ],
)
def test_a_requirement_that_breaks_a_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    """The sentence names the number and the rule."""
    with pytest.raises(UsageError, match=message):
        small_requirements(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_users": 1, "domain_size": 2},
        {"n_users": 2, "domain_size": 2, "central_epsilon": 50.0},
        pytest.param(
            {"n_users": 10**9, "domain_size": 2**24, "central_epsilon": 1e-3},
            marks=pytest.mark.slow,
        ),
        {"domain_size": 2, "messages_cap": 1.000001},
        {"n_users": 100, "delta": 0.5},
        pytest.param(
            {"n_users": 100, "delta": 1e-15, "messages_cap": 50.0}, marks=pytest.mark.slow
        ),
        pytest.param({"domain_size": 20_000, "messages_cap": 1e6}, marks=pytest.mark.slow),
        {"local_cap": 1e-6, "central_epsilon": 1e-6},
    ],
)
def test_valid_requirements_have_a_plan(changes: dict[str, Any]) -> None:
    """Extreme ones have one too: noisy reports can meet any target."""
    target = small_requirements(**changes)
    found = plan(target)

    assert found.central_guarantee.epsilon <= target.central_epsilon
    assert math.isfinite(found.best.mse)
