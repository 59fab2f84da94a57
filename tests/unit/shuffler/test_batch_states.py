import dataclasses

import pytest

from shuffledp.common.errors import BatchStateError
from shuffledp.common.messages.batch import BatchState
from shuffledp.shuffler.batch_states import (
    FINAL_STATES,
    ClosingRule,
    Event,
    close_request_event,
    due_event,
    is_past_end,
    next_state,
)
from tests.support.tables import table

_RULE = ClosingRule(n_min=10, target_size=20, deadline=100)
_NEXT = {
    (BatchState.COLLECTING, Event.CLOSE): BatchState.CLOSED,
    (BatchState.COLLECTING, Event.EXPIRE): BatchState.EXPIRED,
    (BatchState.CLOSED, Event.PERMUTE): BatchState.PERMUTED,
    (BatchState.PERMUTED, Event.SEND): BatchState.SENT,
    (BatchState.PERMUTED, Event.REFUSE): BatchState.QUARANTINED,
    (BatchState.SENT, Event.DELIVER): BatchState.DELIVERED,
    (BatchState.SENT, Event.REFUSE): BatchState.QUARANTINED,
    (BatchState.DELIVERED, Event.ERASE): BatchState.ERASED,
}
_DROPPED = frozenset({BatchState.CLOSED, BatchState.PERMUTED, BatchState.QUARANTINED})
_NEXT |= {(state, Event.DROP): BatchState.DROPPED for state in _DROPPED}
_NEXT[BatchState.SENT, Event.DROP] = BatchState.UNCONFIRMED


@table("event", Event)
@table("state", BatchState)
def test_an_event_moves_a_batch_or_is_refused(state: BatchState, event: Event) -> None:
    """For every pair; the error names state and event."""
    if (state, event) in _NEXT:
        assert _NEXT[state, event] is next_state(state, event)
    else:
        with pytest.raises(BatchStateError, match=f"that is {state.value} cannot {event.value}"):
            next_state(state, event)


@table("state", sorted(set(BatchState) - {BatchState.COLLECTING}, key=str))
def test_after_collecting_the_state_alone_decides(state: BatchState) -> None:
    """The first event above is due; closing again does nothing, unless the batch expired."""
    events = (event for before, event in _NEXT if before is state and event is not Event.DROP)
    due = next(events, None)
    assert due is due_event(state, 0, _RULE, 0)
    if state is BatchState.EXPIRED:
        with pytest.raises(BatchStateError, match="the batch expired: it had fewer users"):
            close_request_event(state, 0, _RULE)
    else:
        assert close_request_event(state, 0, _RULE) is None


@table(
    ("n_users", "now", "n_min", "event"),
    [
        (0, 50, 10, None),
        (19, 99, 10, None),
        (20, 0, 10, Event.CLOSE),
        (25, 0, 10, Event.CLOSE),
        (10, 100, 10, Event.CLOSE),
        (9, 100, 10, Event.EXPIRE),
        (0, 101, 10, Event.EXPIRE),
        (25, 50, 30, None),
        (30, 50, 30, Event.CLOSE),
    ],
)
def test_a_batch_closes_at_its_target_or_its_deadline_and_never_below_n_min(
    n_users: int, now: int, n_min: int, event: Event | None
) -> None:
    """Below n_min at the deadline it expires; an n_min above the target outranks it."""
    rule = dataclasses.replace(_RULE, n_min=n_min)

    assert event is due_event(BatchState.COLLECTING, n_users, rule, now)


@table("state", BatchState)
def test_every_state_ends_by_itself_or_at_its_end_date(state: BatchState) -> None:
    """Thirty seconds after the deadline of 100, if the shuffler still keeps the batch then."""
    assert not is_past_end(state, _RULE, 30, 129.9)
    can_drop = (state, Event.DROP) in _NEXT
    assert can_drop == is_past_end(state, _RULE, 30, 130)
    if not can_drop and state not in FINAL_STATES:
        assert due_event(state, 0, _RULE, 100) is not None


def test_an_operator_closes_a_batch_early_but_never_below_n_min() -> None:
    """Target and deadline are not reached; the refusal names n_min, and not how many users."""
    assert close_request_event(BatchState.COLLECTING, 10, _RULE) is Event.CLOSE
    with pytest.raises(BatchStateError, match="fewer users than n_min, which is 10;") as caught:
        close_request_event(BatchState.COLLECTING, 7, _RULE)
    assert "7" not in str(caught.value)
