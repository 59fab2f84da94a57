"""Views of a batch that a simulation made, without services; and what several see together."""

import numpy as np
import pytest

from common.crypto.hpke import HpkePrivateKey
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest
from common.task_digest import TaskDigest
from deploy.audit.raw_bytes import pieces
from deploy.audit.services.tape import Heard
from deploy.audit.services.traced import TracedAnswer, TracedContributor
from deploy.audit.services.views import (
    NOT_A_USERS,
    AnalyzerView,
    Received,
    ShufflerView,
    UserView,
    analyzer_view,
    network_view,
    shuffler_view,
    together,
)
from shuffler.permutation import permute
from tests.support.tasks import PublishedTask, published

_USERS = 12
_EACH = 3


class _Batch:
    """Twelve answers, permuted; with one report of the shuffler's own at the end."""

    def __init__(self) -> None:
        self.of: PublishedTask = published(protocol="mixdump", buckets=0, dummies_per_user=2)
        rng, self.answers = np.random.default_rng(1), list[TracedAnswer]()
        digest: TaskDigest = self.of.signed.digest()
        contributor = TracedContributor(self.of.task, digest, told=self.answers.append)
        for user in range(_USERS):
            contributor.answer(user, rng)
        size = self.of.task.sealed_report_bytes
        sent = b"".join(report for answer in self.answers for report in answer.sealed)
        rows = np.frombuffer(sent, dtype=np.uint8).reshape(-1, size)
        self.delivered = [*pieces(permute(rows, rng).tobytes(), size), rng.bytes(size)]
        self.chunks = [b"".join(self.delivered[:20]), b"".join(self.delivered[20:])]

    def shuffler(self, key: HpkePrivateKey | None = None) -> ShufflerView:
        """Give the shuffler's view; one envelope is garbage, which is not stored."""
        envelopes = [
            Received(peer=f"peer {place}", moment=1.0, length=9, envelope=e, stored=stored)
            for place, (e, stored) in enumerate(
                [(b"garbage", False), *((answer.envelope, True) for answer in self.answers)]
            )
        ]
        return shuffler_view(
            envelopes,
            self.chunks,
            self.of.task,
            self.of.signed.digest(),
            key or self.of.shuffler_key,
        )

    def analyzer(self) -> AnalyzerView:
        """Give the analyzer's view."""
        manifest = BatchManifest(
            task_digest=self.of.signed.digest(),
            batch_id=BatchId(bytes(16)),
            n_users=_USERS,
            n_reports=len(self.delivered),
        )
        return analyzer_view(
            manifest, self.chunks, self.of.task, self.of.signed.digest(), self.of.analyzer_key
        )


@pytest.fixture(scope="module")
def batch() -> _Batch:
    """Seal once for all tests."""
    return _Batch()


def test_the_shuffler_sees_senders_and_its_order_and_no_content(batch: _Batch) -> None:
    """What it opens are ids and sealed reports; each delivered one is found among them."""
    view = batch.shuffler()

    assert [answer.submission_id for answer in batch.answers] == [
        submission.submission_id for submission in view.submissions
    ]
    assert tuple(one for answer in batch.answers for one in answer.sealed) == view.reports
    assert batch.delivered[:-1] == [view.reports[place] for place in view.order[:-1]]
    assert NOT_A_USERS == view.order[-1]
    assert tuple(f"peer {place}" for place in range(1, _USERS + 1)) == view.senders


def test_the_analyzer_sees_reports_and_no_sender(batch: _Batch) -> None:
    """All that users made opens; what nobody sealed does not."""
    view = batch.analyzer()
    made = sorted(report for answer in batch.answers for report in answer.reports)

    assert tuple(batch.delivered) == view.reports
    assert made == sorted(text for text in view.opened if text is not None)
    assert view.opened[-1] is None
    assert _USERS * _EACH == len(view.counted(mechanism_of(batch.of.task)))


def test_together_shuffler_and_analyzer_link_every_report(batch: _Batch) -> None:
    """Each sender's opened reports are those that its device had made."""
    view = together(batch.shuffler(), batch.analyzer())

    for place, answer in enumerate(batch.answers):
        opened = view.of_sender(place)
        assert sorted(answer.reports) == sorted(text for text in opened if text is not None)
    assert view.peers is not None
    assert view.remaining is not None
    assert view.remaining.all()


def test_alone_the_analyzer_links_nothing(batch: _Batch) -> None:
    """Nor do users help it to more than their own reports, which leave the batch."""
    colluding = UserView(answers=tuple(batch.answers[:5]))
    view = together(batch.analyzer(), colluding)

    assert view.senders is None
    assert view.peers is None
    assert view.remaining is not None
    assert 5 * _EACH == int((~view.remaining).sum())
    assert tuple(range(5)) == colluding.values
    with pytest.raises(ValueError, match="together"):
        view.of_sender(0)


def test_a_shuffler_with_users_opens_nothing(batch: _Batch) -> None:
    """It takes their reports off by their ciphertexts, and knows who sent the others."""
    view = together(batch.shuffler(), UserView(answers=tuple(batch.answers[:5])))

    assert view.reports is None
    assert view.senders is not None
    assert view.remaining is not None
    assert 5 * _EACH == int((~view.remaining).sum())
    assert set(range(5, _USERS)) | {NOT_A_USERS} == set(view.senders[view.remaining].tolist())


def test_the_network_sees_ends_lengths_and_times() -> None:
    """And nothing of what stays on a device."""

    def heard(party: str, *, inward: bool) -> Heard:
        return Heard(
            call=1,
            party=party,  # type: ignore[arg-type]  # one of the three
            method="Submit",
            inward=inward,
            peer="somebody",
            headers=(),
            moment=2.0,
            raw=bytes(7),
        )

    view = network_view(
        [
            heard("user_agent", inward=True),
            heard("shuffler", inward=True),
            heard("shuffler", inward=False),
        ]
    )

    assert [("somebody", "shuffler", 7, 2.0), ("shuffler", "somebody", 7, 2.0)] == [
        (one.source, one.destination, one.length, one.moment) for one in view.sights
    ]
