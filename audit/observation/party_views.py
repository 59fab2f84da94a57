"""Checks of each party's view of a recorded run."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, get_args

import numpy as np
from numpy.random import Generator

from shuffledp.audit import statistics
from shuffledp.audit.finding import Checks, Finding, Rows
from shuffledp.audit.harness import byte_search
from shuffledp.audit.harness.services import GRPC_HEADERS, RecordedCall
from shuffledp.audit.observation.recorder import MOMENTS, RunRecord, record_run
from shuffledp.audit.scenario import AuditSubject
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.runtime import logs
from shuffledp.common.task.task import listed
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2

Patterns = dict[str, list[bytes]]

_LINKS: Final = ("submission id", "envelope", "hash of an envelope")
"""Byte strings that could link a delivery to a submission."""
_MIN_DISTINCT_BYTES: Final = 8
"""Minimum distinct bytes of an opened report to search for; others could occur by chance."""


def observe_services(subject: AuditSubject, rng: Generator) -> Rows:
    """Run the three services once, and check each party's view."""
    return views_of(record_run(subject, rng))


def views_of(record: RunRecord) -> Rows:
    """Yield one finding per view of a run."""
    for view in (network_view, shuffler_view, analyzer_view, analyzer_disk, logs_and_metrics):
        yield view(record)


def network_view(record: RunRecord) -> Finding:
    """Check that message lengths do not depend on values."""
    checks, task = Checks(), record.task
    sizes, allowed = [*map(len, record.envelopes)], task.envelope_sizes
    checks.require("all submissions have one of the task's lengths", {*sizes} <= {*allowed})
    drawn = np.searchsorted(allowed, sizes)
    checks.cells("numbers of reports", drawn, task.dummies.length_probabilities())
    singles = [call for call in record.to_shuffler if call.method == "Submit"]
    requests, parsed = [call.requests[0] for call in singles], shuffler_pb2.SubmitRequest.FromString
    found = {(len(request), len(parsed(request).envelope)) for request in requests}
    follows = len(found) == len({length for _, length in found})
    checks.require("a request's length follows from its submission's", follows)
    answers = {len(call.answer or b"") for call in singles}
    checks.require("all answers have one length", len(answers) == 1)
    return checks.finding(
        title="Network: lengths of messages",
        coalition="network",
        sentence=f"Every submission had {listed(allowed)} bytes, as many as its number of reports "
        "requires, which does not depend on its value.",
        trials=len(record.envelopes),
    )


def shuffler_view(record: RunRecord) -> Finding:
    """Search all messages to the shuffler and its disk for secrets; test the order on its disk."""
    checks = Checks()
    opened = _secrets(record, "opened report", "planted name")
    _search(checks, opened, _requests(record.to_shuffler), "reaches the shuffler")
    size = record.task.sealed_report_bytes
    stored = [report for group in record.groups for report in split_every(group, size)]
    complete = Counter(stored) == Counter(record.sent)
    checks.require("its disk held all submissions, encrypted with the batch's key", complete)
    if complete:
        groups = [
            np.array([record.places[report] for report in split_every(group, size)])
            for group in record.groups
        ]
        checks.test("order on its disk", statistics.p_group_order(groups))
    secret = opened | _secrets(record, "sealed report", *_LINKS, "batch key")
    checks.require("the batch's key was recorded", bool(record.batch_keys))
    _search_disk(checks, secret, record, "shuffler")
    left = [name for name in record.disks["shuffler", "over"] if name.startswith("batch")]
    checks.require("no batch key and no permuted batch remain", not left)
    return checks.finding(
        title="Shuffler: what it received and keeps",
        coalition="shuffler",
        sentence="The shuffler received sealed reports only. Without the batch's key, no report, "
        "submission id or envelope was readable on its disk; reports were not in arrival order; "
        "the key was destroyed after delivery.",
        trials=len(record.to_shuffler),
    )


def analyzer_view(record: RunRecord) -> Finding:
    """Test the delivery's order, counts and fields; search calls to the analyzer for links."""
    checks, order = Checks(), record.order
    users = order[order >= 0]
    checks.test("rank correlation with arrival", statistics.p_rank(users))
    checks.test("neighbours that arrived as neighbours", statistics.p_successions(users))
    checks.test("neighbours of one user", statistics.p_neighbours(record.owners[users]))
    checks.test("blocks of arrival by blocks of delivery", statistics.p_blocks(users))
    if not (order >= 0).all():
        checks.test("places of the shuffler's dummies", statistics.p_rank_sum(order < 0))
    begun, parts = record.delivering("BeginDelivery"), record.delivering("DeliverPart")
    numbers_of_parts = [request for call in parts for request in call.requests[:1]]
    announced = {request for call in begun for request in call.requests}
    once = len(announced) == 1 and len(set(numbers_of_parts)) == len(numbers_of_parts)
    checks.require("the batch is delivered once", once)
    manifest, delivered = record.delivery
    numbers = (len(record.submissions), len(delivered))
    for whose, stated in (("manifest", manifest), ("result", record.result)):
        correct = (stated.n_users, stated.n_reports) == numbers
        checks.require(f"the {whose}'s numbers are correct", correct)
    unchanged, shuffler = len(set(record.sent) & set(delivered)), record.task.shuffler
    kept = unchanged == len(record.sent) or shuffler.keep_probability < 1
    checks.require("no report is lost", kept)
    own = unchanged == len(delivered) or shuffler.most_dummies > 0
    checks.require("no report is added or repeated", own)
    checks.require("every report opens", None not in record.opened)
    last = max(call.begun for call in record.to_shuffler if call.method.startswith("Submit"))
    checks.require("the batch is delivered after its last submission", begun[0].begun > last)
    sizes = {len(request) for call in parts for request in call.requests[1:-1]}
    checks.require("all messages with reports have one length", len(sizes) <= 1)
    for call in record.to_analyzer:
        headers = {name for name, _ in call.headers}
        checks.require("calls carry gRPC's headers only", headers <= {*GRPC_HEADERS})
        exact = all(_known_fields(call.method, request) == request for request in call.requests)
        checks.require("calls contain the protocol's fields only", exact)
    linkable = _secrets(record, *_LINKS, "planted name")
    _search(checks, linkable, _requests(record.to_analyzer), "reaches the analyzer")
    return checks.finding(
        title="Analyzer: order and contents of the delivery",
        coalition="analyzer",
        sentence="The analyzer received the closed batch in one delivery, in an order unrelated to "
        "arrival and to senders, and nothing but a manifest and sealed reports: no field links a "
        "report to a submission.",
        trials=len(delivered),
    )


def analyzer_disk(record: RunRecord) -> Finding:
    """Search the analyzer's disk for links to submissions and for reports, at three moments."""
    checks = Checks()
    secrets = _secrets(record, *_LINKS, "opened report", "sealed report")
    _search_disk(checks, secrets, record, "analyzer")
    return checks.finding(
        title="Analyzer: its disk",
        coalition="thief of the analyzer's disk",
        sentence="The analyzer's disk held no submission and no report, opened or sealed, at any "
        f"of {len(MOMENTS)} moments.",
        trials=sum(len(files) for (party, _), files in record.disks.items() if party == "analyzer"),
    )


def logs_and_metrics(record: RunRecord) -> Finding:
    """Search all logs and metrics for planted words and secrets, and check the log fields."""
    checks, lines = Checks(), [*map(json.loads, record.logs.splitlines())]
    allowed = {"level", "event", *get_args(logs.Field)}
    checks.require("the services logged", any(line["event"] == "batch released" for line in lines))
    only_allowed = all(set(line) <= allowed for line in lines)
    checks.require("log lines contain allowed fields only", only_allowed)
    numbers = {field for line in lines for field in line.values() if isinstance(field, int)}
    checks.require("the only numbers are those of the batch", numbers <= {0, record.result.n_users})
    digits = any(mark.isdigit() for line in lines for mark in line["event"])
    checks.require("no event contains a digit", not digits)
    pages = "\n".join(record.metrics.values())
    shown = all("shuffledp_" in page for page in record.metrics.values())
    checks.require("every service shows metrics", shown)
    planted = _secrets(record, "sealed report", *_LINKS, "opened report", "planted name", "label")
    _search(checks, planted, record.logs.encode(), "is logged")
    _search(checks, planted, pages.encode(), "is in the metrics")
    return checks.finding(
        title="Logs and metrics of all services",
        coalition="reader of logs and metrics",
        sentence=f"{len(lines):,} log lines at level DEBUG and {len(record.metrics)} pages of "
        "metrics contain no value, no planted name, label or header, and no report or submission.",
        trials=len(lines),
    )


def _search(checks: Checks, patterns: Patterns, haystack: bytes, where: str) -> None:
    found = byte_search.kinds_found(patterns, haystack)
    for name in patterns:
        checks.require(f"no {name} {where}", name not in found)


def _search_disk(checks: Checks, patterns: Patterns, record: RunRecord, party: str) -> None:
    for moment in MOMENTS:
        files = b"\n".join(record.disks[party, moment].values())
        _search(checks, patterns, files, f"is on its disk, {moment}")


def _requests(calls: Sequence[RecordedCall]) -> bytes:
    return b"\n".join(request for call in calls for request in call.requests)


def _secrets(record: RunRecord, *kinds: str) -> Patterns:
    """Return byte strings by kind, leaving out opened reports that could occur by chance."""
    texts = {text for text in record.opened if text and len(set(text)) >= _MIN_DISTINCT_BYTES}
    ids = [submission_id for submission_id, _ in record.submissions]
    known = {
        "sealed report": _every(byte_search.start_encodings, record.sent),
        "submission id": _every(byte_search.encodings, ids),
        "envelope": _every(byte_search.start_encodings, record.envelopes),
        "hash of an envelope": _every(byte_search.hash_encodings, record.envelopes),
        "opened report": _every(byte_search.encodings, texts),
        "planted name": [name.encode() for name in record.names],
        "label": [record.label.encode()],
        "batch key": _every(byte_search.encodings, record.batch_keys.values()),
    }
    return {kind: known[kind] for kind in kinds}


def _every(encode: Callable[[bytes], list[bytes]], secrets: Iterable[bytes]) -> list[bytes]:
    return [encoding for secret in secrets for encoding in encode(secret)]


def _known_fields(method: str, raw: bytes) -> bytes:
    """Re-encode a request to the analyzer without fields that are unknown to the protocol."""
    message: Any = getattr(analyzer_pb2, f"{method}Request").FromString(raw)
    message.DiscardUnknownFields()
    return bytes(message.SerializeToString())
