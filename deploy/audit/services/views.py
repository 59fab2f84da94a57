"""
What each party sees of one batch, as it received it; and what several see together.

A view holds what came in at the party's own door, and what follows from it with the party's own
keys. It is made of a recorded collection over the services, or of parts that a simulation made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context
from common.mechanisms.base import Mechanism, Reports, is_null
from common.messages.batch import BatchManifest
from common.messages.submission import Outcome, Submission, unpack
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.batches import chunk_from_wire, manifest_from_wire
from common.wire.submissions import outcomes_from_wire
from deploy.audit.raw_bytes import pieces
from deploy.audit.services.record import Collection
from deploy.audit.services.tape import Heard
from deploy.audit.services.traced import TracedAnswer
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2

NOT_A_USERS: Final = -1
"""In place of a sender: nobody that the shuffler heard from sent this report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One envelope at the shuffler."""

    peer: str
    moment: float
    length: int
    """Of the whole request, in bytes; 0 of one among many."""
    envelope: bytes
    stored: bool
    """It is in the batch; a repeat of one that is, is not another."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ShufflerView:
    """The shuffler's: who sent what, unopened reports, and the order that it drew."""

    envelopes: tuple[Received, ...]
    """All that came, in order of arrival."""
    submissions: tuple[Submission, ...]
    """Of those that are stored, opened, in order of arrival."""
    report_bytes: int
    order: NDArray[np.int64]
    """
    For each report that it delivered: its place among all of `reports`; NOT_A_USERS of the
    shuffler's own dummies.
    """

    @cached_property
    def reports(self) -> tuple[bytes, ...]:
        """Sealed reports, submission by submission."""
        return tuple(
            report
            for submission in self.submissions
            for report in pieces(submission.sealed_reports, self.report_bytes)
        )

    @property
    def senders(self) -> tuple[str, ...]:
        """Who sent each submission."""
        return tuple(one.peer for one in self.envelopes if one.stored)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AnalyzerView:
    """The analyzer's: a manifest, and sealed reports in some order, which it can open."""

    manifest: BatchManifest
    chunks: tuple[bytes, ...]
    opened: tuple[bytes | None, ...]
    """Plaintexts in the order of delivery; None where a report does not open."""
    report_bytes: int

    @cached_property
    def reports(self) -> tuple[bytes, ...]:
        """Sealed reports in the order of delivery."""
        return tuple(report for chunk in self.chunks for report in pieces(chunk, self.report_bytes))

    def counted(self, mechanism: Mechanism) -> Reports:
        """Give what a mechanism can count: each sealed report once, padding left out."""
        first = dict.fromkeys(self.reports)
        kept = [
            text
            for report, text in zip(self.reports, self.opened, strict=True)
            if text is not None and first.pop(report, b"") is None
        ]
        reports = np.frombuffer(b"".join(kept), dtype=mechanism.report_dtype)
        fine: Reports = reports[mechanism.valid(reports) & ~is_null(reports)]
        return fine


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One message as the network sees it."""

    moment: float
    source: str
    destination: str
    method: str
    """Of the call that it is part of: what follows on what tells it."""
    length: int
    """Of the message; transport adds a number of bytes that depends on it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkView:
    """The network's: lengths, directions, endpoints and times, in order."""

    sights: tuple[Sight, ...]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class UserView:
    """That of some users, who tell each other everything: what they hold, made and sent."""

    answers: tuple[TracedAnswer, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """What they hold."""
        return tuple(answer.value for answer in self.answers)

    @property
    def envelopes(self) -> tuple[bytes, ...]:
        """What they sent."""
        return tuple(answer.envelope for answer in self.answers)

    @cached_property
    def sealed(self) -> frozenset[bytes]:
        """Their sealed reports: own ones, dummies and padding."""
        return frozenset(report for answer in self.answers for report in answer.sealed)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Together:
    """
    What a coalition sees that pools its members' views. What nobody of it sees is None.

    Places are those of the delivery.
    """

    reports: tuple[bytes | None, ...] | None
    """Opened, in the order of delivery: with the analyzer alone."""
    senders: NDArray[np.int64] | None
    """Of each delivered report which stored submission held it; NOT_A_USERS of the shuffler's own
    dummies: with the shuffler, which knows its order."""
    peers: tuple[str, ...] | None
    """Who sent each submission."""
    remaining: NDArray[np.bool_] | None
    """Which delivered reports are not a colluding user's."""
    sights: tuple[Sight, ...] | None

    def of_sender(self, place: int) -> list[bytes | None]:
        """Give the opened reports of one submission: shuffler and analyzer are in the coalition."""
        if self.reports is None or self.senders is None:
            raise ValueError("reports are linked to senders by shuffler and analyzer together")
        return [self.reports[report] for report in np.flatnonzero(self.senders == place)]

    def remaining_of(self, analyzer: AnalyzerView) -> set[bytes]:
        """Give the sealed reports that are not a colluding user's: the analyzer is in it."""
        if self.remaining is None:
            raise ValueError("whoever sees no batch has none left")
        left = zip(analyzer.reports, self.remaining, strict=True)
        return {report for report, is_left in left if is_left}


View = ShufflerView | AnalyzerView | NetworkView | UserView


def together(*views: View) -> Together:
    """
    Pool some views of one batch.

    With shuffler and analyzer each opened report is linked to its sender; with users their own
    reports are known among those of the batch, by whoever sees these.
    """
    of = {type(view): view for view in views}
    shuffler, analyzer = of.get(ShufflerView), of.get(AnalyzerView)
    network = of.get(NetworkView)
    senders = None
    if isinstance(shuffler, ShufflerView):
        each = max(1, len(shuffler.reports) // max(1, len(shuffler.submissions)))
        senders = np.where(shuffler.order < 0, NOT_A_USERS, shuffler.order // each)
    colluding = frozenset[bytes]().union(
        *(view.sealed for view in views if isinstance(view, UserView))
    )
    remaining = None
    if isinstance(analyzer, AnalyzerView):
        remaining = np.array([one not in colluding for one in analyzer.reports], dtype=np.bool_)
    elif isinstance(shuffler, ShufflerView):
        remaining = np.array(
            [place < 0 or shuffler.reports[place] not in colluding for place in shuffler.order],
            dtype=np.bool_,
        )
    return Together(
        reports=analyzer.opened if isinstance(analyzer, AnalyzerView) else None,
        senders=senders,
        peers=shuffler.senders if isinstance(shuffler, ShufflerView) else None,
        remaining=remaining,
        sights=network.sights if isinstance(network, NetworkView) else None,
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Views:
    """All views of one batch."""

    shuffler: ShufflerView
    analyzer: AnalyzerView
    network: NetworkView
    everybody: UserView

    @classmethod
    def of(cls, collection: Collection) -> Self | None:
        """Give them of a recorded collection; None if nothing was delivered."""
        delivered = delivery(collection.heard)
        if delivered is None:
            return None
        manifest, chunks = delivered
        return cls(
            shuffler=shuffler_view(
                received(collection.heard),
                chunks,
                collection.task,
                collection.digest,
                collection.opens_envelopes,
            ),
            analyzer=analyzer_view(
                manifest, chunks, collection.task, collection.digest, collection.opens_reports
            ),
            network=network_view(collection.heard),
            everybody=UserView(answers=collection.answers),
        )

    def users(self, places: Sequence[int]) -> UserView:
        """Give the view of some users."""
        return UserView(answers=tuple(self.everybody.answers[place] for place in places))


def shuffler_view(
    envelopes: Sequence[Received],
    chunks: Sequence[bytes],
    task: Task,
    digest: TaskDigest,
    key: HpkePrivateKey,
) -> ShufflerView:
    """Make the shuffler's view of what it received and delivered."""
    opener, size = key.opener(envelope_context(digest)), task.sealed_report_bytes
    opened = [opener(one.envelope) for one in envelopes if one.stored]
    submissions = tuple(unpack(text, task) for text in opened if text is not None)
    sent = [one for submission in submissions for one in pieces(submission.sealed_reports, size)]
    places = {report: place for place, report in reversed(list(enumerate(sent)))}
    order = [places.get(one, NOT_A_USERS) for chunk in chunks for one in pieces(chunk, size)]
    return ShufflerView(
        envelopes=tuple(envelopes),
        submissions=submissions,
        report_bytes=size,
        order=np.array(order, dtype=np.int64),
    )


def analyzer_view(
    manifest: BatchManifest,
    chunks: Sequence[bytes],
    task: Task,
    digest: TaskDigest,
    key: HpkePrivateKey,
) -> AnalyzerView:
    """Make the analyzer's view of what it received."""
    opener, size = key.opener(report_context(digest)), task.sealed_report_bytes
    return AnalyzerView(
        manifest=manifest,
        chunks=tuple(chunks),
        opened=tuple(opener(report) for chunk in chunks for report in pieces(chunk, size)),
        report_bytes=size,
    )


def network_view(heard: Sequence[Heard]) -> NetworkView:
    """Make the network's view; what stays on a device is not on it."""
    return NetworkView(
        sights=tuple(
            Sight(
                moment=one.moment,
                source=one.peer if one.inward else one.party,
                destination=one.party if one.inward else one.peer,
                method=one.method,
                length=len(one.raw),
            )
            for one in heard
            if one.party != "user_agent"
        )
    )


def received(heard: Sequence[Heard]) -> list[Received]:
    """Give every envelope that came to the shuffler, in order of arrival."""
    answers = {one.call: one.raw for one in heard if not one.inward}
    found: list[Received] = []
    for one in heard:
        if not one.inward or one.method not in {"Submit", "SubmitBulk"}:
            continue
        answer = answers.get(one.call)
        if one.method == "Submit":
            envelopes = [shuffler_pb2.SubmitRequest.FromString(one.raw).envelope]
            told = shuffler_pb2.SubmitResponse.FromString(answer or b"")
            stored = [answer is not None and not told.repeated]
        else:
            envelopes = list(shuffler_pb2.SubmitBulkRequest.FromString(one.raw).envelopes)
            outcomes = outcomes_from_wire(shuffler_pb2.SubmitBulkResponse.FromString(answer or b""))
            stored = [outcome is Outcome.STORED for outcome in outcomes] or [False] * len(envelopes)
        found += [
            Received(
                peer=one.peer,
                moment=one.moment,
                length=len(one.raw) if one.method == "Submit" else 0,
                envelope=envelope,
                stored=is_stored,
            )
            for envelope, is_stored in zip(envelopes, stored, strict=True)
        ]
    return found


def delivery(heard: Sequence[Heard]) -> tuple[BatchManifest, tuple[bytes, ...]] | None:
    """Give the first delivery that the analyzer took: its manifest and chunks."""
    for call in dict.fromkeys(one.call for one in heard if one.method == "DeliverBatch"):
        messages = [one for one in heard if one.call == call]
        if not any(not one.inward for one in messages):
            continue
        first, *rest = (
            analyzer_pb2.DeliverBatchRequest.FromString(one.raw) for one in messages if one.inward
        )
        return manifest_from_wire(first), tuple(map(chunk_from_wire, rest))
    return None
