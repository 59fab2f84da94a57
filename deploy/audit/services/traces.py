"""Logs, metrics and output: nothing in them by which a person or a value could be found."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
import numpy as np

from common.messages.batch import BatchState
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.raw_bytes import found, hashed, written
from deploy.audit.services.record import Record
from user_agent.evidence import Inclusion


class _Form:
    """A form that a text must have."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def fits(self, text: object) -> bool:
        """Say whether it is a text, and has it."""
        return isinstance(text, str) and self._pattern.fullmatch(text) is not None


_LEVELS: Final = frozenset({"DEBUG", "INFO", "WARNING", "ERROR"})
_PARTIES: Final = frozenset(
    {"shuffledp.v1.Analyzer", "shuffledp.v1.Shuffler", "shuffledp.v1.UserAgent"}
)
_EVENT: Final = _Form(r"[A-Za-z][A-Za-z ,'._-]*")
"""A sentence that is always the same: nothing that was counted, measured or sent."""
_ERROR: Final = _Form(r"[A-Za-z]+")
_WHERE: Final = _Form(r"[A-Za-z_]+\.py:[0-9]+")
_TOKEN: Final = re.compile(r"[0-9A-Za-z+/=_-]{6,}")
_LONG: Final = 8
"""Bytes from which on a plaintext is not found by chance."""
_LIKELY: Final = 10_000
"""Numbers from which on digits are not found by chance."""
_UNLIKELY: Final = 10**9
"""The same of numbers of which there are thousands."""
_NUMBER: Final = re.compile(rb"(?<![0-9A-Za-z.:])[0-9]{5,20}(?![0-9A-Za-z.])")


def finding(record: Record) -> Finding:
    """Read every line that was logged at the loudest level, every page of metrics, all output."""
    checks = Checks()
    _fields(checks, record)
    text = b"\n".join(line.encode() for _, line in record.log_lines)
    pages = "\n".join(record.metrics.values()).encode()
    for where, haystack in (
        ("a log", text),
        ("a page of metrics", pages),
        ("the services' output", record.output),
    ):
        for what, patterns in _planted(record):
            checks.must(f"{what} is not in {where}", not found(patterns, haystack))
        for what, numbers in _numbers(record):
            checks.must(f"no {what} is in {where}", not _digits(numbers, haystack))
    checks.must("every service shows its metrics", all(record.metrics.values()))
    logged = {who for who, _ in record.log_lines}
    checks.must("every service logged something", logged >= {"analyzer", "shuffler", "user_agent"})
    checks.must(
        "nothing but log lines is written to standard output or error",
        all(line.startswith(b'{"level": ') for line in record.output.splitlines()),
    )
    checks.must("logs of shuffler and analyzer share public names alone", not _shared(record))
    return checks.finding(
        scenario="services",
        title="Logs, metrics and output",
        heading="anonymity",
        coalition="whoever reads the logs",
        sentence=(
            f"{len(record.log_lines)} log lines at level DEBUG, {len(record.metrics)} pages of "
            "metrics and all output of the three services were searched for values that were "
            "planted, names, tokens, ids, reports, envelopes, hashes of them and callers' ports: "
            "none is there. What shuffler and analyzer both log are task and batch."
        ),
        trials=len(record.log_lines),
    )


def _fields(checks: Checks, record: Record) -> None:
    """Look at every field of every line: each may hold what is known to everybody, or nothing."""
    sizes = {one.result.n_users for one in record.collections if one.result}
    sizes.add(len(record.few.answers))
    refused = {sum(one.result.refused.values()) for one in record.collections if one.result}
    states = {state.value for state in (*BatchState, *Inclusion)}
    statuses = {code.name for code in grpc.StatusCode}
    names = record.names
    # The list is the audit's own: a field that the services come to have is none of it.
    may: dict[str, Callable[[Any], bool]] = {
        "level": lambda text: text in _LEVELS,
        "event": _EVENT.fits,
        "party": lambda text: text in _PARTIES,
        "address": lambda text: text in names.addresses.values(),
        "task_digest": lambda text: text in names.tasks,
        "batch_id": lambda text: text in names.batches,
        "n_users": lambda number: number in sizes,
        "refused": lambda number: number in refused,
        "state": lambda text: text in states,
        "status": lambda text: text in statuses,
        "key_id": lambda text: text in names.keys,
        "error": _ERROR.fits,
        "where": _WHERE.fits,
    }
    for party, line in record.log_lines:
        fields = json.loads(line)
        checks.must("log lines hold fields of the list alone", set(fields) <= set(may))
        for name in sorted(set(fields) & set(may)):
            holds = may[name](fields[name])
            checks.must(f"the field {name} holds what everybody may know", holds)
        if party == "user_agent":
            checks.must(
                "the device logs no number and no batch",
                not {"n_users", "refused", "batch_id"} & set(fields),
            )


def _planted(record: Record) -> Iterator[tuple[str, list[bytes]]]:
    answers = [answer for one in record.collections for answer in one.answers]
    yield (
        "a label",
        [record.first.task.labels[0].split()[0].encode()] if record.first.task.labels else [],
    )
    yield "a person's name", [word.encode() for one in record.persons for word in one.split()]
    yield "a submission id", [way for one in answers for way in written(one.submission_id)]
    yield "a user's token", [way for one in record.tokens for way in written(one[:16])]
    sealed = [report for one in answers for report in one.sealed]
    yield "a sealed report", [way for one in sealed for way in written(one[:18])]
    yield "a sealed report's hash", [way for one in sealed for way in hashed(one)]
    yield "an envelope", [way for one in answers for way in written(one.envelope[:18])]
    yield "an envelope's hash", [way for one in answers for way in hashed(one.envelope)]
    plain = [report for one in answers for report in one.reports if len(report) >= _LONG]
    plain = [report for report in plain if set(report) != {0xFF}]
    yield "an opened report", [way for one in plain for way in written(one)]
    ports = {one.peer.rpartition(":")[2] for one in record.heard if one.party != "user_agent"}
    yield (
        "a caller's port",
        [mark + port.encode() for port in ports if port.isdigit() for mark in (b":", b"%3A")],
    )


def _numbers(record: Record) -> Iterator[tuple[str, set[int]]]:
    values = {answer.value for answer in record.marked.answers}
    yield "planted value", {value for value in values if value >= _LIKELY}
    dtype = record.first.mechanism.report_dtype
    if "seed" in (dtype.names or ()):
        drawn = b"".join(report for one in record.first.answers for report in one.reports)
        seeds = np.unique(np.frombuffer(drawn, dtype=dtype)["seed"])
        yield "seed", set(seeds[seeds >= _UNLIKELY].tolist())


def _digits(numbers: set[int], haystack: bytes) -> set[int]:
    """Look for numbers, where they are no part of a longer one, and no port of a service."""
    return numbers & {int(digits) for digits in _NUMBER.findall(haystack)}


def _shared(record: Record) -> set[str]:
    """Give the names with a digit that both log, beside those of tasks and batches."""
    public = record.names.tasks | record.names.batches
    tokens = {
        party: {
            token
            for who, line in record.log_lines
            if who == party
            for token in _TOKEN.findall(line)
            if any(letter.isdigit() for letter in token)
        }
        for party in ("shuffler", "analyzer")
    }
    return (tokens["shuffler"] & tokens["analyzer"]) - public
