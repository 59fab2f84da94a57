import json
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import CredentialError, PeerError, PeerRefusalError, UnknownTaskError
from shuffledp.common.messages.batch import BatchState
from shuffledp.deploy.pages.live_feed import LiveFeed, live_page
from tests.support.batch_progress import progress
from tests.support.chains import chain
from tests.support.page_text import page_text
from tests.support.tasks import published


def _batch(feed: LiveFeed) -> Any:
    return json.loads(feed.answer)["batch"]


def _text(feed: LiveFeed) -> str:
    return page_text(f"<body>{_batch(feed)['html']}")


def _watched(rate: int, seconds: int = 100, **changes: Any) -> LiveFeed:
    """Return a feed of users who come at a rate, from 100 on, asked every two seconds."""
    clock = ManualClock()
    feed = LiveFeed(clock, progress(100, **changes))
    for moment in range(2, seconds + 1, 2):
        clock.seconds += 2
        feed.take(progress(100 + rate * moment, **changes))
    return feed


@pytest.mark.parametrize(
    ("rate", "seconds", "changes"),
    [
        pytest.param(2, 100, {}, id="in time: 300 of 1,000 users"),
        pytest.param(2, 100, {"deadline": 1_000_000_160}, id="too late: 700 more in 60 s"),
        pytest.param(2, 100, {"deadline": 1_000_000_440}, id="open"),
        pytest.param(0, 100, {}, id="silence"),
        pytest.param(2, 10, {}, id="too early for a forecast"),
        pytest.param(10, 100, {}, id="enough: the target next"),
        pytest.param(20, 100, {}, id="the target is reached"),
        pytest.param(1, 100, {"deadline": 1_000_000_000}, id="deadline passed"),
        pytest.param(1, 100, {"state": BatchState.EXPIRED}, id="expired"),
        pytest.param(1, 100, {"state": BatchState.CLOSED}, id="closed"),
    ],
)
def test_a_batch_is_described(
    rate: int, seconds: int, changes: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    """The text has users, forecast, time left and refused submissions."""
    assert snapshot == _text(_watched(rate, seconds, **changes))


@pytest.mark.parametrize("state", BatchState)
def test_every_state_has_words(state: BatchState, snapshot: SnapshotAssertion) -> None:
    """Only a collecting batch has a forecast."""
    batch = _batch(_watched(1, state=state))

    assert ('id="forecast"' in batch["html"]) == (state is BatchState.COLLECTING)
    assert snapshot == {name: value for name, value in batch.items() if name != "html"}


def test_an_unknown_cause_of_refusal_is_escaped_and_counted() -> None:
    """The cause stands beside the known ones."""
    feed = _watched(1, refused={"token used": 12, "<b>new": 5})

    assert "<b>new" not in _batch(feed)["html"]
    assert "<b>new | 5" in _text(feed)
    assert "Token used its token was used for another submission | 12" in _text(feed)


def test_old_samples_are_dropped() -> None:
    """A quarter of an hour of watching keeps eleven minutes."""
    assert "11 minutes ago" in _batch(_watched(1, seconds=900))["html"]


def test_an_error_of_the_shuffler_stands_beside_its_last_answer() -> None:
    """The figures stay."""
    feed = LiveFeed(ManualClock(), progress(300))
    feed.take_error(PeerRefusalError(UnknownTaskError.status, "there is no batch of this task"))
    message = "No device has fetched this task from the shuffler yet."
    assert message == json.loads(feed.answer)["error"]
    feed.take_error(PeerError("it could not be reached in time"))
    assert "could not be reached in time." in json.loads(feed.answer)["error"]
    assert "300" == _batch(feed)["users"]


def test_a_refused_token_ends_the_feed() -> None:
    """No later request with the same token would be answered."""
    refusal = PeerRefusalError(CredentialError.status, "the token is wrong")

    with pytest.raises(PeerRefusalError, match="the token is wrong"):
        LiveFeed(ManualClock(), progress(0)).take_error(refusal)


def test_the_first_of_two_shufflers_delivers_to_the_second() -> None:
    """The page names both, and says what the state means."""
    found = published(**chain())
    feed = LiveFeed(ManualClock(), progress(300, state=BatchState.PERMUTED), found.task)
    page = live_page(found.signed.digest(), poll_seconds=1.0, task=found.task)

    assert "on their way to the second shuffler." in _batch(feed)["explanation"]
    assert "first.example collects the answers and passes the batch to second.example" in page
