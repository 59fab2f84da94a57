import json
from typing import Any

import pytest

from common.errors import PeerError, PeerRefusalError, UnknownTaskError
from common.messages.batch import BatchState
from deploy.audit.harness.clock import ManualClock
from deploy.pages.live_feed import LiveFeed
from tests.support.batch_progress import progress


def _batch(feed: LiveFeed) -> Any:
    return json.loads(feed.answer)["batch"]


def _watched(rate: int, seconds: int = 100, **changes: Any) -> LiveFeed:
    """Watch users come at a rate, asked every two seconds, from 100 on."""
    clock = ManualClock()
    feed = LiveFeed(clock)
    for moment in range(0, seconds + 1, 2):
        feed.take(progress(100 + rate * moment, **changes))
        clock.seconds += 2
    return feed


def test_before_an_answer_the_page_says_that_it_waits() -> None:
    """And shows no batch."""
    answer = json.loads(LiveFeed(ManualClock()).answer)

    assert answer["batch"] is None
    assert "has not answered yet" in answer["trouble"]


def test_progress_is_told_in_words_and_figures() -> None:
    """300 users of 1,000; the bar ends at the target."""
    batch = _batch(_watched(2))

    assert "Collecting" == batch["state"]
    assert "300" == batch["users"]
    assert "700 more" in batch["aim"]
    assert (15.0, 50.0) == (batch["filled"], batch["mark"])
    assert "n_min, 1,000 users, is reached in" in batch["forecast"]
    assert "will be reached before the deadline" in batch["verdict"]


def test_a_deadline_that_will_be_missed_is_said_to_be() -> None:
    """700 more at two a second take 350 s; there are 60."""
    batch = _batch(_watched(2, deadline=1_000_000_160))

    assert "will not be reached" in batch["verdict"]
    assert "bad" == batch["outlook"]


def test_silence_is_said() -> None:
    """Nobody came while it was watched."""
    batch = _batch(_watched(0))

    assert "No users arrived in the last 1 minute 40 seconds." in batch["forecast"]


def test_once_there_are_enough_the_target_is_foretold() -> None:
    """The batch is released whatever happens."""
    batch = _batch(_watched(10))

    assert "the target of 2,000" in batch["forecast"]
    assert "can then be released if n_min holds without" in batch["verdict"]


@pytest.mark.parametrize("rate", [0, 10])
def test_users_are_told_with_sentinels_included(rate: int) -> None:
    """The shuffler counts them, and the analyzer takes them off: n_min must hold without them."""
    aim = _batch(_watched(rate))["aim"]

    assert "an operator's sentinels included; n_min must hold without them" in aim


@pytest.mark.parametrize("state", BatchState)
def test_every_state_has_words(state: BatchState) -> None:
    """And nothing is foretold of a batch that does not collect."""
    batch = _batch(_watched(1, state=state))

    assert batch["state"]
    assert (batch["forecast"] != "") == (state is BatchState.COLLECTING)


def test_an_expired_batch_does_not_ask_for_more_users() -> None:
    """It says how many were missing."""
    batch = _batch(_watched(1, state=BatchState.EXPIRED))

    assert "800 too few" in batch["aim"]
    assert "It has expired" == batch["left"]


def test_a_batch_that_closed_is_said_to_have_closed() -> None:
    """Not one that expired."""
    assert "It has closed" == _batch(_watched(1, state=BatchState.CLOSED))["left"]


def test_an_erased_batch_says_what_stays() -> None:
    """Hashes, for proofs of inclusion, and counts: not nothing."""
    explanation = _batch(_watched(1, state=BatchState.ERASED))["explanation"]

    assert "Hashes of sealed reports" in explanation
    assert "nothing of them is left" not in explanation


def test_refused_submissions_are_counted_by_cause() -> None:
    """Also by one that this program does not know."""
    batch = _batch(_watched(1, refused={"token used": 12, "new cause": 5}))

    numbers = {row["name"]: row["number"] for row in batch["refused"]}
    assert "12" == numbers["Token used"]
    [why] = [row["why"] for row in batch["refused"] if row["name"] == "Token used"]
    assert "its token came with another submission before" == why
    assert "0" == numbers["Malformed"]
    assert "5" == numbers["new cause"]


def test_a_shuffler_that_cannot_be_asked_is_named_beside_what_it_said_last() -> None:
    """The figures stay, with their age."""
    feed = _watched(2)
    feed.fail("it could not be reached in time")

    answer = json.loads(feed.answer)
    assert "could not be reached in time. What is shown it said 2 seconds ago." in answer["trouble"]
    assert "300" == answer["batch"]["users"]


def test_old_samples_are_let_go() -> None:
    """An hour of watching keeps eleven minutes."""
    chart = _batch(_watched(1, seconds=3600))["chart"]

    assert -660 <= chart[0][0] < -600


def test_a_task_that_nobody_has_fetched_is_no_shuffler_that_cannot_be_asked() -> None:
    """It answers; it makes a batch when a device asks for the task."""
    feed = LiveFeed(ManualClock())
    feed.take_error(PeerRefusalError(UnknownTaskError.status, "there is no batch of this task"))

    answer = json.loads(feed.answer)
    assert "Nobody has fetched this task from the shuffler yet." == answer["trouble"]
    assert answer["batch"] is None
    feed.take_error(PeerError("it could not be reached in time"))
    assert "cannot be asked: it could not be reached" in json.loads(feed.answer)["trouble"]
