"""
The states of a batch, and the events that change them.

    collecting ─▶ closed ─▶ permuted ─▶ sent ─▶ delivered ─▶ erased
        │                       └────────┴─▶ quarantined: the analyzer refused it
        └─▶ expired: too few users at the deadline; destroyed, never released

A batch that is closed, permuted or quarantined can be dropped, and is dropped at its end date:
destroyed, never released. One that is sent, but not confirmed, becomes unconfirmed: destroyed, but
the analyzer may release it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Annotated, Final

from shuffledp.common.errors import BatchStateError
from shuffledp.common.limits import MAX_UNIX_TIME, MAX_USERS, parse_count, parse_positive
from shuffledp.common.messages.batch import BatchState


class Event(Enum):
    """Events that change a batch's state."""

    CLOSE = "close"
    EXPIRE = "expire"
    PERMUTE = "permute"
    SEND = "send"
    DELIVER = "deliver"
    REFUSE = "refuse"
    ERASE = "erase"
    DROP = "drop"


TRANSITIONS: Final[Mapping[tuple[BatchState, Event], BatchState]] = MappingProxyType(
    {
        (BatchState.COLLECTING, Event.CLOSE): BatchState.CLOSED,
        (BatchState.COLLECTING, Event.EXPIRE): BatchState.EXPIRED,
        (BatchState.CLOSED, Event.PERMUTE): BatchState.PERMUTED,
        (BatchState.PERMUTED, Event.SEND): BatchState.SENT,
        (BatchState.PERMUTED, Event.REFUSE): BatchState.QUARANTINED,
        (BatchState.SENT, Event.DELIVER): BatchState.DELIVERED,
        (BatchState.SENT, Event.REFUSE): BatchState.QUARANTINED,
        (BatchState.DELIVERED, Event.ERASE): BatchState.ERASED,
        (BatchState.CLOSED, Event.DROP): BatchState.DROPPED,
        (BatchState.PERMUTED, Event.DROP): BatchState.DROPPED,
        (BatchState.SENT, Event.DROP): BatchState.UNCONFIRMED,
        (BatchState.QUARANTINED, Event.DROP): BatchState.DROPPED,
    }
)

FINAL_STATES: Final = frozenset(set(BatchState) - {state for state, _ in TRANSITIONS})
"""States in which batch and key are destroyed."""
UNPERMUTED_STATES: Final = frozenset({BatchState.COLLECTING, BatchState.CLOSED})
"""States in which a batch's submissions are on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRule:
    """The task's limits on when a batch closes; n_min is at least this shuffler's minimum."""

    n_min: Annotated[int, partial(parse_positive, maximum=MAX_USERS)]
    target_size: Annotated[int, partial(parse_positive, maximum=MAX_USERS)]
    deadline: Annotated[int, partial(parse_count, maximum=MAX_UNIX_TIME)]


def next_state(state: BatchState, event: Event) -> BatchState:
    """Return the state that an event leads to; raise BatchStateError if it is not possible."""
    if (state, event) not in TRANSITIONS:
        raise BatchStateError(f"a batch that is {state.value} cannot {event.value}")
    return TRANSITIONS[state, event]


def close_request_event(state: BatchState, n_users: int, rule: ClosingRule) -> Event | None:
    """
    Return the event of an operator's request to close a batch; None if already closed.

    Raises BatchStateError if it has fewer users than n_min and keeps collecting, or it expired.
    """
    if state is BatchState.COLLECTING:
        if n_users < rule.n_min:  # the message must not reveal n_users
            raise BatchStateError(
                f"the batch has fewer users than n_min, which is {rule.n_min}; it keeps collecting"
            )
        return Event.CLOSE
    if state is BatchState.EXPIRED:
        raise BatchStateError(
            f"the batch expired: it had fewer users at its deadline than n_min, {rule.n_min}"
        )
    return None


def is_past_end(state: BatchState, rule: ClosingRule, keep: float, now: float) -> bool:
    """Return whether a batch is to be dropped, `keep` seconds after its deadline."""
    return (state, Event.DROP) in TRANSITIONS and now >= rule.deadline + keep


def due_event(state: BatchState, n_users: int, rule: ClosingRule, now: float) -> Event | None:
    """Return the due event of a batch before its end date; None if it must wait or is finished."""
    if state is BatchState.COLLECTING:
        if n_users >= max(rule.target_size, rule.n_min):
            return Event.CLOSE
        if now >= rule.deadline:
            return Event.CLOSE if n_users >= rule.n_min else Event.EXPIRE
        return None
    return {
        BatchState.CLOSED: Event.PERMUTE,
        BatchState.PERMUTED: Event.SEND,
        BatchState.SENT: Event.DELIVER,
        BatchState.DELIVERED: Event.ERASE,
    }.get(state)
