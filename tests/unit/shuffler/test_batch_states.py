import dataclasses

import pytest

from shuffledp.common.errors import BatchStateError
from shuffledp.common.messages.batch import BatchState
from shuffledp.shuffler import batch_states
from tests.support.tables import table

_RULE = batch_states.ClosingRule(n_min=10, target_size=20, deadline=100)
_NEXT = {
    (BatchState.COLLECTING, batch_states.Event.CLOSE): BatchState.CLOSED,
    (BatchState.COLLECTING, batch_states.Event.EXPIRE): BatchState.EXPIRED,
    (BatchState.CLOSED, batch_states.Event.PERMUTE): BatchState.PERMUTED,
    (BatchState.PERMUTED, batch_states.Event.SEND): BatchState.SENT,
    (BatchState.PERMUTED, batch_states.Event.REFUSE): BatchState.QUARANTINED,
    (BatchState.SENT, batch_states.Event.DELIVER): BatchState.DELIVERED,
    (BatchState.SENT, batch_states.Event.REFUSE): BatchState.QUARANTINED,
    (BatchState.DELIVERED, batch_states.Event.ERASE): BatchState.ERASED,
}
_DROPPED = frozenset({BatchState.CLOSED, BatchState.PERMUTED, BatchState.QUARANTINED})
_NEXT |= {(state, batch_states.Event.DROP): BatchState.DROPPED for state in _DROPPED}
_NEXT[BatchState.SENT, batch_states.Event.DROP] = BatchState.UNCONFIRMED


@table("event", batch_states.Event)
@table("state", BatchState)
def test_an_event_moves_a_batch_or_is_refused(state: BatchState, event: batch_states.Event) -> None:
    """For every pair; the error names state and event."""
    if (state, event) in _NEXT:
        assert _NEXT[state, event] is batch_states.next_state(state, event)
    else:
        with pytest.raises(BatchStateError, match=f"that is {state.value} cannot {event.value}"):
            batch_states.next_state(state, event)


@table("state", sorted(set(BatchState) - {BatchState.COLLECTING}, key=str))
def test_after_collecting_the_state_alone_decides(state: BatchState) -> None:
    """The first event above is due; closing again does nothing, unless the batch expired."""
    events = (
        event for before, event in _NEXT if before is state and event is not batch_states.Event.DROP
    )
    due = next(events, None)
    assert due is batch_states.due_event(state, 0, _RULE, 0)
    if state is BatchState.EXPIRED:
        with pytest.raises(BatchStateError, match="the batch expired: it had fewer users"):
            batch_states.close_request_event(state, 0, _RULE)
    else:
        assert batch_states.close_request_event(state, 0, _RULE) is None


@table(
    ("n_users", "now", "n_min", "event"),
    [
        (0, 50, 10, None),
        (19, 99, 10, None),
        (20, 0, 10, batch_states.Event.CLOSE),
        (25, 0, 10, batch_states.Event.CLOSE),
        (10, 100, 10, batch_states.Event.CLOSE),
        (9, 100, 10, batch_states.Event.EXPIRE),
        (0, 101, 10, batch_states.Event.EXPIRE),
        (25, 50, 30, None),
        (30, 50, 30, batch_states.Event.CLOSE),
    ],
)
def test_a_batch_closes_at_its_target_or_its_deadline_and_never_below_n_min(
    n_users: int, now: int, n_min: int, event: batch_states.Event | None
) -> None:
    """Below n_min at the deadline it expires; an n_min above the target outranks it."""
    rule = dataclasses.replace(_RULE, n_min=n_min)

    assert event is batch_states.due_event(BatchState.COLLECTING, n_users, rule, now)


@table("state", BatchState)
def test_every_state_ends_by_itself_or_at_its_end_date(state: BatchState) -> None:
    """Thirty seconds after the deadline of 100, if the shuffler still keeps the batch then."""
    assert not batch_states.is_past_end(state, _RULE, 30, 129.9)
    can_drop = (state, batch_states.Event.DROP) in _NEXT
    assert can_drop == batch_states.is_past_end(state, _RULE, 30, 130)
    if not can_drop and state not in batch_states.FINAL_STATES:
        assert batch_states.due_event(state, 0, _RULE, 100) is not None


def test_an_operator_closes_a_batch_early_but_never_below_n_min() -> None:
    """Target and deadline are not reached; the refusal names n_min, and not how many users."""
    assert (
        batch_states.close_request_event(BatchState.COLLECTING, 10, _RULE)
        is batch_states.Event.CLOSE
    )
    with pytest.raises(BatchStateError, match="fewer users than n_min, which is 10;") as caught:
        batch_states.close_request_event(BatchState.COLLECTING, 7, _RULE)
    assert "7" not in str(caught.value)
