"""The audit of the running services: every row holds, and each view is what was really received."""

from collections import Counter

import numpy as np
import pytest

from common.task.task import Task
from deploy.audit.raw_bytes import pieces
from deploy.audit.services.plan import plan_for
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.scenarios import SCENARIOS
from deploy.audit.services.views import NOT_A_USERS, Views, received, together
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2
from tests.support.audited_services import USERS, audited, audited_task, played, rows
from tests.support.protocol_tasks import protocol_task

pytestmark = pytest.mark.slow

_TITLES = {
    "Lengths on the wire",
    "Number of messages",
    "Contents of the batch",
    "Order and time of the delivery",
    "Logs, metrics and output",
    "What services tell whoever asks",
    "The shuffler's disk",
    "The analyzer's disk",
    "Keys and files of the three parties",
    "Fewer users than planned",
    "Devices, retries and tasks",
    "Who may call what",
    "Generators of the running services",
}


@pytest.fixture(scope="module")
def record() -> Record:
    """Play once, in a process of its own."""
    return played(in_child=True)


@pytest.fixture(scope="module", params=["first", "again", "early"])
def batch(record: Record, request: pytest.FixtureRequest) -> Collection:
    """Give each delivered batch of the play."""
    found: Collection = getattr(record, request.param)
    return found


@pytest.fixture(scope="module")
def views(batch: Collection) -> Views:
    """Give all views of it."""
    found = Views.of(batch)
    assert found is not None
    return found


def test_every_row_holds(record: Record) -> None:
    """One for each thing that a reader wants to know."""
    found = rows(record)

    assert _TITLES == set(found)
    assert {} == {title: row.sentence for title, row in found.items() if not row.passed}
    assert {"services"} == {row.scenario for row in found.values()}


def test_it_is_one_scenario() -> None:
    """One play is behind all rows."""
    [scenario] = SCENARIOS
    outcome = scenario.play(audited(users=60), np.random.default_rng(4))

    assert "services" == scenario.name
    assert {"holds"} == {row.verdict for row in outcome.findings}


@pytest.mark.parametrize("name", ["aue", "od-hp", "sbin", "hybrid", "ldp-olh-strings", "ldp-sw"])
def test_every_row_holds_for_other_protocols(name: str) -> None:
    """Dummies of a law, each item's, the shuffler's; sampling; strings, and a line."""
    found = rows(played(audited(protocol_task(name)), in_child=True))

    assert {} == {title: row.sentence for title, row in found.items() if not row.passed}


def test_what_is_played_is_drawn_from_the_seed(record: Record) -> None:
    """Reports, dummies and their places are the same again; keys and ciphertexts are not."""
    again = played(in_child=False)

    assert [(one.value, one.reports, one.submission_id) for one in record.first.answers] == [
        (one.value, one.reports, one.submission_id) for one in again.first.answers
    ]
    assert record.first.cells == again.first.cells
    assert record.first.answers[0].sealed != again.first.answers[0].sealed


def test_the_shufflers_view_is_what_it_received(batch: Collection, views: Views) -> None:
    """Byte for byte what clients sent, in the order in which they did, and nothing else stored."""
    sent = [
        envelope
        for one in batch.heard
        if one.inward and one.method in {"Submit", "SubmitBulk"}
        for envelope in (
            [shuffler_pb2.SubmitRequest.FromString(one.raw).envelope]
            if one.method == "Submit"
            else shuffler_pb2.SubmitBulkRequest.FromString(one.raw).envelopes
        )
    ]
    stored = [one.envelope for one in views.shuffler.envelopes if one.stored]
    honest = [answer.envelope for answer in batch.answers]

    assert sent == [one.envelope for one in views.shuffler.envelopes]
    assert honest == stored[: len(honest)]
    assert len(stored) == len(set(stored)) == len(views.shuffler.submissions)
    assert batch.result is not None
    assert batch.result.n_users == len(stored)


@pytest.mark.parametrize("name", ["first", "early"])
def test_the_shufflers_view_is_what_its_spool_held(record: Record, name: str) -> None:
    """
    Opened under the batch's key: the same sealed reports, in an order that is not arrival's.

    Of the batches that were closed for their operator, and could be read just before.
    """
    batch: Collection = getattr(record, name)
    views = Views.of(batch)

    assert views is not None
    assert batch.disk is not None
    spooled = pieces(batch.disk.spooled, batch.task.sealed_report_bytes)
    assert Counter(views.shuffler.reports) == Counter(spooled)
    assert list(views.shuffler.reports) != spooled


def test_the_analyzers_view_is_what_it_received_and_stored(batch: Collection, views: Views) -> None:
    """Chunk for chunk what the shuffler's permuted file held, and what staging kept."""
    messages = [
        analyzer_pb2.DeliverBatchRequest.FromString(one.raw)
        for one in batch.heard
        if one.method == "DeliverBatch" and one.inward
    ]
    manifests = [one.manifest for one in messages if one.HasField("manifest")]
    chunks = tuple(one.sealed_reports for one in messages if one.HasField("sealed_reports"))

    assert batch.mixed is not None
    assert chunks == views.analyzer.chunks == batch.mixed.permuted == batch.staged
    assert views.analyzer.manifest.batch_id == manifests[0].batch_id == batch.mixed.batch_id
    assert views.analyzer.manifest.n_reports == manifests[0].n_reports


def test_the_order_is_the_one_that_was_drawn(views: Views) -> None:
    """Every delivered report stands at the place that the shuffler's view says."""
    held, order = views.shuffler.reports, views.shuffler.order
    linked = [held[place] for place in order if place != NOT_A_USERS]

    assert list(views.analyzer.reports) == linked
    assert len(order) == len(held)


def test_the_networks_view_is_every_message(batch: Collection, views: Views) -> None:
    """In order, with its length and both of its ends."""
    assert [len(one.raw) for one in batch.heard] == [one.length for one in views.network.sights]
    moments = [one.moment for one in views.network.sights]
    assert moments == sorted(moments)
    assert {"shuffler", "analyzer"} == {
        end
        for one in views.network.sights
        for end in (one.source, one.destination)
        if ":" not in end
    }


def test_together_they_see_what_devices_made(batch: Collection, views: Views) -> None:
    """Shuffler and analyzer: every honest user's own reports, by sender."""
    view = together(views.shuffler, views.analyzer)

    for place, answer in enumerate(batch.answers):
        opened = [text for text in view.of_sender(place) if text is not None]
        assert sorted(answer.reports) == sorted(opened)


def test_users_take_their_own_reports_off_the_batch(batch: Collection, views: Views) -> None:
    """Whoever colludes with the analyzer; what is left are all others'."""
    colluding = views.users(range(0, len(batch.answers), 2))
    view = together(views.analyzer, colluding)

    assert view.remaining is not None
    taken = {
        report
        for report, left in zip(views.analyzer.reports, view.remaining, strict=True)
        if not left
    }
    assert colluding.sealed == taken


def test_a_device_that_repeats_itself_sent_the_same_bytes(record: Record) -> None:
    """The first person's acknowledgement was lost, and another value asked for."""
    first, second, *_ = received(record.first.heard)

    assert first.envelope == second.envelope
    assert (True, False) == (first.stored, second.stored)
    assert USERS == len(record.first.answers)


def test_the_played_task_is_the_audited_one(record: Record) -> None:
    """But for what a small batch needs: n_min, target, keys and names of items."""
    wanted, task = audited_task(), record.first.task
    plan = plan_for(audited(), np.random.default_rng(1))

    assert (wanted.mechanism, wanted.dummies, wanted.shuffler) == (
        task.mechanism,
        task.dummies,
        task.shuffler,
    )
    assert plan.draft.n_min == task.n_min <= USERS // 3
    assert isinstance(task, Task)
    assert task.target_size > USERS
