"""What stands between an operator and a wanted error, and the least single change that helps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from common.accounting.epsilon_search import MOST_EPSILON
from common.errors import PlanError
from common.task.task import MAX_LOCAL_EPSILON, MAX_USERS
from deploy.planning.protocol_search import Survey
from deploy.planning.requirements import Wishes

_RELAXED: Final = 1.1
_MATTERS: Final = 0.998
"""A wish binds if a tenth more of it would take the error below this share."""
_MOST_MESSAGES: Final = 10_000.0
_TRIES: Final = 6
_HALVINGS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One wish that could be given more of."""

    name: str
    now: float
    most: float
    apply: Callable[[float], dict[str, Any]]
    say: Callable[[float], str]


def binding(survey: Survey) -> tuple[str, ...]:
    """Name the wishes of which a tenth more would lower the error, as drawn."""
    now = survey.drawn_mse()
    return tuple(
        change.name
        for change in _changes(survey.frontier.wishes)
        if change.name != "users"
        and survey.drawn_mse(**change.apply(min(_RELAXED * change.now, change.most)))
        < _MATTERS * now
    )


def refusal(survey: Survey) -> PlanError:
    """
    Say why the wanted error is out of reach, and what would do.

    Each change stands alone, is rounded up to two digits, and has been confirmed by the exact
    accountant.

    Cost: some ten evaluations of δ a change.
    """
    wishes, best = survey.frontier.wishes, survey.best
    enough = [
        change.say(value)
        for change in _changes(wishes)
        if (value := _least_enough(survey, change)) is not None
    ]
    held = binding(survey)
    why = f"; what holds it back: {', '.join(held)}" if held else ""
    what = f"{', or '.join(enough)} would do" if enough else "no single change would do"
    return PlanError(
        f"a mean squared error of {wishes.max_mse:g} cannot be reached: the best is "
        f"{best.mse:.3g}, by {best.design.protocol}{why}; {what}"
    )


def _changes(wishes: Wishes) -> list[_Change]:
    changes = [
        _Change(
            name="central epsilon",
            now=wishes.central_epsilon,
            most=MOST_EPSILON,
            apply=lambda value: {"central_epsilon": value},
            say=lambda value: f"a central epsilon of {value:g}",
        )
    ]
    if wishes.trust != "none" and math.isfinite(wishes.messages_cap):
        changes.append(
            _Change(
                name="messages cap",
                now=wishes.messages_cap,
                most=max(_MOST_MESSAGES, wishes.messages_cap),
                apply=lambda value: {"messages_cap": value},
                say=lambda value: f"{value:g} messages a user",
            )
        )
    if wishes.local_cap < MAX_LOCAL_EPSILON:
        changes.append(
            _Change(
                name="local cap",
                now=wishes.local_cap,
                most=MAX_LOCAL_EPSILON,
                apply=lambda value: {"local_cap": value},
                say=lambda value: f"a local cap of {value:g}",
            )
        )
    changes.append(
        _Change(
            name="users",
            now=float(wishes.n_users),
            most=float(MAX_USERS),
            apply=lambda value: _with_users(wishes, value),
            say=lambda value: _users_in_words(wishes, value),
        )
    )
    return changes


def _with_users(wishes: Wishes, n_users: float) -> dict[str, Any]:
    """More users, and an n_min that grows with them."""
    users = math.ceil(n_users)
    return {"n_users": users, "n_min": min(users, wishes.n_min * users // wishes.n_users)}


def _users_in_words(wishes: Wishes, n_users: float) -> str:
    changed = _with_users(wishes, n_users)
    if changed["n_min"] == changed["n_users"]:
        return f"{changed['n_users']:,} users"
    return f"{changed['n_users']:,} users with an n_min of {changed['n_min']:,}"


def _least_enough(survey: Survey, change: _Change) -> float | None:
    """Give the least value, rounded up, at which the wanted error is confirmed; None if none."""
    wanted = survey.frontier.wishes.max_mse
    low, high = change.now, change.most
    if low >= high or survey.drawn_mse(**change.apply(high)) > wanted:
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if survey.drawn_mse(**change.apply(middle)) <= wanted:
            high = middle
        else:
            low = middle
    for _ in range(_TRIES):
        value = min(_two_digits_up(high), change.most)
        if survey.best_if(**change.apply(value)).mse <= wanted:
            return value
        high = value * 1.005
    return None


def _two_digits_up(value: float) -> float:
    place = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / place - 1e-9) * place:.2g}")
