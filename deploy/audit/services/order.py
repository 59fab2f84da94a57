"""Order and time: the delivery tells nothing of who sent what when."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.fit import of_cells
from deploy.audit.order_tests import (
    of_ascents,
    of_blocks,
    of_groups,
    of_groups_on_disk,
    of_rank,
    of_ranks,
    of_same_places,
    of_successions,
)
from deploy.audit.raw_bytes import found, hashed, pieces, written
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.sources import Asked
from deploy.audit.services.views import Views
from protos.shuffledp.v1 import analyzer_pb2
from shuffler.permutation import BUFFER_BYTES

Places = NDArray[np.int64]

_CELL: Final = 25
"""Reports expected in a cell of the table of blocks, at least."""
_MOST_BLOCKS: Final = 10
_OF_THE_SHUFFLER: Final = frozenset({"GetTask", "DeliverBatch"})
_OF_DEVICES: Final = frozenset({"FetchTask", "Submit", "SubmitBulk", "GetInclusion"})
_USUAL: Final = frozenset({"user-agent"})
"""Headers that gRPC sends with every call."""


def finding(record: Record, views: dict[str, Views]) -> Finding:
    """Compare orders, and read every message that the analyzer received."""
    checks = Checks()
    for collection in (record.first, record.again, record.early):
        view = views.get(collection.name)
        checks.must(f"the {collection.name} batch was delivered", view is not None)
        if view is not None:
            _ordered(checks, collection, view)
            _drawn(checks, collection, view, record.asked)
            _timed(checks, collection, view)
    if "first" in views and "again" in views:
        checks.test(
            "places that one user has in both batches",
            of_same_places(*(_senders(views[name]) for name in ("first", "again"))),
        )
    _own_places(checks, [record.first, record.again, record.early])
    _messages(checks, record)
    n_reports = sum(len(view.analyzer.reports) for view in views.values())
    return checks.finding(
        scenario="services",
        title="Order and time of the delivery",
        heading="anonymity",
        coalition="analyzer",
        sentence=(
            "The analyzer received each batch in one delivery after it had closed, in an order "
            "that showed nothing of the order of arrival, of who sent which reports together, or "
            "of which report carries a value; and nothing but ciphertexts and one manifest. "
            "Batches that were read on the shuffler's disk before stood as it had drawn, report "
            "by report."
        ),
        trials=n_reports,
    )


def _senders(view: Views) -> Places:
    """Give who sent each delivered report, by place of the submission; without added dummies."""
    each = max(1, len(view.shuffler.reports) // max(1, len(view.shuffler.submissions)))
    order = view.shuffler.order
    senders: Places = order[order >= 0] // each
    return senders


def _ordered(checks: Checks, collection: Collection, view: Views) -> None:
    name = f"in the {collection.name} batch"
    order = view.shuffler.order
    users = order[order >= 0]
    checks.test(f"rank correlation with arrival {name}", of_rank(users))
    checks.test(f"neighbours that arrived as neighbours {name}", of_successions(users))
    checks.test(f"neighbours of one user {name}", of_groups(_senders(view)))
    checks.test(f"blocks of arrival by blocks of delivery {name}", of_blocks(users))
    checks.test(f"ciphertexts in ascending order {name}", of_ascents(view.analyzer.reports))
    if not (order >= 0).all():
        checks.test(f"places of the shuffler's dummies {name}", of_ranks(order < 0))
    own = {
        answer.sealed[place]
        for answer in collection.answers
        if (place := answer.own_place) is not None
    }
    marked = np.array([report in own for report in view.analyzer.reports], dtype=np.bool_)
    checks.test(f"places of reports that carry a value {name}", of_ranks(marked))
    if collection.disk is not None:
        lay = pieces(collection.disk.spooled, collection.task.sealed_report_bytes)
        places = {report: place for place, report in enumerate(lay)}
        stored = np.array(
            [places[one] for one in view.analyzer.reports if one in places], dtype=np.int64
        )
        checks.must(f"the shuffler held what it delivered {name}", len(stored) == len(users))
        checks.test(f"rank correlation with the order on disk {name}", of_rank(stored))
        checks.test(f"neighbours that lay as neighbours on disk {name}", of_successions(stored))
        checks.test(f"blocks on disk by blocks of delivery {name}", of_blocks(stored))
        arrivals = {report: place for place, report in enumerate(view.shuffler.reports)}
        groups = [
            np.array([arrivals.get(one, 0) for one in pieces(group, view.shuffler.report_bytes)])
            for group in collection.disk.groups
        ]
        checks.test(f"groups on disk in the order of arrival {name}", of_groups_on_disk(groups))


def _drawn(checks: Checks, collection: Collection, view: Views, asked: Sequence[Asked]) -> None:
    """
    Put a batch back by the orders that the shuffler drew: by one of them it lies as on the disk.

    A batch of more than the shuffler holds in memory is permuted in parts, and is left out.
    """
    n, name = len(view.analyzer.reports), f"of the {collection.name} batch"
    if collection.disk is None or n * view.shuffler.report_bytes > BUFFER_BYTES:
        return
    lay = pieces(collection.disk.spooled, view.shuffler.report_bytes)
    orders = [
        one.order
        for one in asked
        if one.order is not None and (one.party, one.size) == ("shuffler", n)
    ]
    checks.must(
        f"every report {name} stands where an order says that the shuffler drew",
        any(lay_before(view.analyzer.reports, order, lay) for order in orders),
    )


def lay_before(delivered: Sequence[bytes], order: Places, lay: Sequence[bytes]) -> bool:
    """
    Say whether reports that are put back by an order lie as they lay on the disk.

    Some may be dropped, and what the shuffler added lies behind all others. Reports are compared,
    and not their places: a dishonest user may send one twice.
    """
    if len(order) != len(delivered):
        return False
    back = dict(zip(order.tolist(), delivered, strict=True))
    before, held = [back[place] for place in range(len(order))], frozenset(lay)
    of_users, rest = [one for one in before if one in held], iter(lay)
    return before[: len(of_users)] == of_users and all(one in rest for one in of_users)


def _own_places(checks: Checks, collections: Sequence[Collection]) -> None:
    """Test where the own report stands in a submission, of those where it can be told."""
    each = collections[0].task.reports_per_user
    places = [
        place
        for collection in collections
        for answer in collection.answers
        if (place := answer.own_place) is not None
    ]
    if each > 1 and places:
        seen = np.bincount(places, minlength=each).astype(np.int64)
        checks.test("place of the own report in its submission", of_cells(seen, np.ones(each)))
        # A single place is seen too where users are too few for each place to have a cell.
        most = int(seen.max())
        level = min(1.0, each * float(stats.binom.sf(most - 1, len(places), 1 / each)))
        checks.test("the commonest place of the own report", level)


def _timed(checks: Checks, collection: Collection, view: Views) -> None:
    name = f"of the {collection.name} batch"
    delivered = [one for one in collection.heard if one.method == "DeliverBatch" and one.inward]
    begun = min(one.moment for one in delivered)
    last = max(one.moment for one in view.shuffler.envelopes if one.stored)
    checks.must(f"nothing {name} is delivered before its last submission", begun > last)
    if collection.closed_at is not None:
        checks.must(
            f"nothing {name} is delivered before it is closed", begun > collection.closed_at
        )
    answered = {
        one.call for one in collection.heard if one.method == "DeliverBatch" and not one.inward
    }
    checks.must(f"there is one delivery {name}", len(answered) == 1)
    sizes = [len(chunk) for chunk in view.analyzer.chunks]
    checks.must(
        f"chunks {name} have one size, but the last",
        len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0],
    )


def _messages(checks: Checks, record: Record) -> None:
    """Read what the analyzer was sent by the shuffler: a question for a task, or a delivery."""
    rest, exact, headers = b"", True, set[str]()
    for one in record.heard:
        if one.party != "analyzer" or not one.inward or one.method not in _OF_THE_SHUFFLER:
            continue
        headers |= set(one.headers)
        if one.method == "GetTask":
            digest = analyzer_pb2.GetTaskRequest.FromString(one.raw).task_digest
            plain = analyzer_pb2.GetTaskRequest(task_digest=digest).SerializeToString()
        else:
            message = analyzer_pb2.DeliverBatchRequest.FromString(one.raw)
            plain = _rewritten(message).SerializeToString()
            if message.HasField("manifest"):
                rest += one.raw
        exact = exact and plain == one.raw
        rest += one.raw if plain != one.raw else b""
    checks.must("the analyzer is sent the fields of the protocol alone", exact)
    checks.must("calls carry no headers of their own", headers <= _USUAL)
    devices = [one for one in record.heard if one.party == "shuffler" and one.inward]
    checks.must(
        "calls of devices carry no headers of their own",
        all(set(one.headers) <= _USUAL for one in devices if one.method in _OF_DEVICES),
    )
    everything = b"".join(one.raw for one in record.heard if one.party == "analyzer" and one.inward)
    answers = [answer for one in record.collections for answer in one.answers]
    ids = [way for answer in answers for way in written(answer.submission_id)]
    checks.must("no submission id reaches the analyzer", not found(ids, everything))
    tokens = [way for token in record.tokens for way in written(token[:16])]
    checks.must("no user's token reaches the analyzer", not found(tokens, everything))
    hashes = [way for answer in answers for way in hashed(answer.envelope)]
    checks.must("no envelope's hash reaches the analyzer", not found(hashes, everything))
    checks.must(
        "no person's name reaches the analyzer",
        not found([word.encode() for one in record.persons for word in one.split()], everything),
    )
    ports = {one.peer.rpartition(":")[2] for one in record.heard if one.party == "shuffler"}
    checks.must(
        "no device's port reaches the analyzer beside ciphertexts",
        not found([port.encode() for port in ports if port.isdigit()], rest),
    )


def _rewritten(message: analyzer_pb2.DeliverBatchRequest) -> analyzer_pb2.DeliverBatchRequest:
    """Write a message anew from the fields that the protocol names."""
    if not message.HasField("manifest"):
        return analyzer_pb2.DeliverBatchRequest(sealed_reports=message.sealed_reports)
    manifest = message.manifest
    return analyzer_pb2.DeliverBatchRequest(
        manifest=analyzer_pb2.BatchManifest(
            task_digest=manifest.task_digest,
            batch_id=manifest.batch_id,
            n_users=manifest.n_users,
            n_reports=manifest.n_reports,
        )
    )
