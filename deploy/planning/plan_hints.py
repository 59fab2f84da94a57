"""What limits a plan's error, and the least single change that reaches a wanted error. Pure."""

import math
from dataclasses import dataclass
from typing import Any, Final

from common.accounting.epsilon_search import MOST_EPSILON
from common.errors import PlanError
from common.task.task import MAX_LOCAL_EPSILON, MAX_USERS
from deploy.planning.protocol_search import ProtocolSearch
from deploy.planning.requirements import Requirements

_RELAXED: Final = 1.1
_MATTERS: Final = 0.998
"""A constraint binds if a tenth more of it would take the error below this share."""
_MAX_MESSAGES: Final = 10_000.0
_TRIES: Final = 6
_HALVINGS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constraint:
    """One number of the requirements that could be larger."""

    name: str
    field: str
    now: float
    most: float
    text: str
    """Describes a value, with a place for it."""

    def changes(self, wanted: Requirements, value: float) -> dict[str, Any]:
        """Return the fields to change; an n_min grows with the users."""
        if self.field != "n_users":
            return {self.field: value}
        users = math.ceil(value)
        return {"n_users": users, "n_min": min(users, wanted.n_min * users // wanted.n_users)}

    def described(self, wanted: Requirements, value: float) -> str:
        """Describe a value that would do."""
        changed = self.changes(wanted, value)
        if changed.get("n_min", changed.get("n_users")) == changed.get("n_users"):
            return self.text.format(math.ceil(value) if "n_users" in changed else value)
        return f"{changed['n_users']:,} users with an n_min of {changed['n_min']:,}"


def binding_constraints(search: ProtocolSearch) -> tuple[str, ...]:
    """Name the constraints of which a tenth more would lower the approximate error."""
    wanted, now = search.frontier.wanted, search.approximate_mse()
    return tuple(
        each.name
        for each in _constraints(wanted)
        if each.name != "users"
        and search.approximate_mse(**each.changes(wanted, min(_RELAXED * each.now, each.most)))
        < _MATTERS * now
    )


def infeasible(search: ProtocolSearch) -> PlanError:
    """
    Return the error that says why the wanted error is out of reach, and what would do.

    Each change stands alone, is rounded up to two digits, and is confirmed by the exact accountant.

    Cost: some ten evaluations of δ a change.
    """
    wanted, best = search.frontier.wanted, search.best
    enough = [
        each.described(wanted, value)
        for each in _constraints(wanted)
        if (value := _least_enough(search, each)) is not None
    ]
    binding = binding_constraints(search)
    why = f"; what holds it back: {', '.join(binding)}" if binding else ""
    what = f"{', or '.join(enough)} would do" if enough else "no single change would do"
    return PlanError(
        f"a mean squared error of {wanted.max_mse:g} cannot be reached: the best is "
        f"{best.mse:.3g}, by {best.design.protocol}{why}; {what}"
    )


def _constraints(wanted: Requirements) -> list[_Constraint]:
    epsilon, messages, cap = wanted.central_epsilon, wanted.messages_cap, wanted.local_cap
    most_messages = max(_MAX_MESSAGES, messages)
    rows = [
        ("central epsilon", "central_epsilon", epsilon, MOST_EPSILON, "a central epsilon of {:g}")
    ]
    if wanted.trust != "none" and math.isfinite(messages):
        rows.append(
            ("messages cap", "messages_cap", messages, most_messages, "{:g} messages a user")
        )
    if cap < MAX_LOCAL_EPSILON:
        rows.append(("local cap", "local_cap", cap, MAX_LOCAL_EPSILON, "a local cap of {:g}"))
    rows.append(("users", "n_users", float(wanted.n_users), float(MAX_USERS), "{:,} users"))
    return [
        _Constraint(name=name, field=field, now=now, most=most, text=text)
        for name, field, now, most, text in rows
    ]


def _least_enough(search: ProtocolSearch, constraint: _Constraint) -> float | None:
    """Return the least value, rounded up, that is confirmed to reach the wanted error."""
    wanted, low, high = search.frontier.wanted, constraint.now, constraint.most

    def approximate(value: float) -> float:
        return search.approximate_mse(**constraint.changes(wanted, value))

    if low >= high or approximate(high) > wanted.max_mse:
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if approximate(middle) <= wanted.max_mse:
            high = middle
        else:
            low = middle
    for _ in range(_TRIES):
        value = min(_two_digits_up(high), constraint.most)
        if search.best_if(**constraint.changes(wanted, value)).mse <= wanted.max_mse:
            return value
        high = value * 1.005
    return None


def _two_digits_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")
