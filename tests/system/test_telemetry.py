"""
Nothing crosses the shuffler but ciphertexts in random order, whatever is switched on.

A batch is run over three child processes at level DEBUG, with every trace that gRPC has asked for
by the environment, and with the headers that tracing libraries and gateways add. Then everything
that shuffler and analyzer wrote to files and logs, their metrics before and after the batch, and
every byte that the shuffler sent to the analyzer, is searched for what was planted.
SHUFFLEDP_MARKERS_SEED plants other markers.

Allowed, and therefore not looked for:

* a task's labels where they stand in the task itself, which everybody fetches;
* the task's deadline, which lies in the future;
* since when a key has been what it is, in keys.json: the time of a start, not of a report;
* the operator's token in the analyzer's own file of that name;
* files of the user agent: it is the person's own;
* the sealed reports at the analyzer: they are what is delivered.
"""

import asyncio
import itertools
import re
import struct
import subprocess
import sys
from collections.abc import Iterable

import numpy as np
import pytest

from common.task.task import Task
from tests.support.markers import (
    header_patterns,
    id_patterns,
    short_time_patterns,
    time_patterns,
)
from tests.support.order import neighbours, rank_correlation
from tests.support.recording import sealed_reports
from tests.support.telemetry_run import LOUD, USERS, Evidence, relayed, run

_BESIDE = rb"(?<=[ -\-/:-@G-`g-~])"
_AFTER = rb"(?=[ -/:-@G-`g-~])"
"""Printable, and no digit of a number, decimal or hexadecimal."""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Run the batch once for all searches."""
    return asyncio.run(run(tmp_path_factory.mktemp("telemetry")))


@pytest.fixture(scope="module")
def everything(evidence: Evidence) -> bytes:
    """All that was written or sent."""
    return evidence.everything()


@pytest.fixture(scope="module")
def plain(evidence: Evidence) -> bytes:
    """The same without what is encrypted: what short patterns are searched for in."""
    return evidence.without_ciphertexts()


def _found(patterns: Iterable[bytes], haystack: bytes) -> list[bytes]:
    """Return the patterns that occur: looked up by their first eight bytes, all in one pass."""
    wanted = list(patterns)
    starts = np.unique(np.array([_number(p) for p in wanted if len(p) >= 8], dtype=np.uint64))
    seen: set[int] = set()
    for offset in range(8 if len(starts) else 0):
        words = np.frombuffer(haystack[offset : offset + (len(haystack) - offset) // 8 * 8], "<u8")
        places = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
        seen.update(words[starts[places] == words].tolist())
    return [
        pattern
        for pattern in wanted
        if (len(pattern) < 8 or _number(pattern) in seen) and pattern in haystack
    ]


def _number(pattern: bytes) -> int:
    return int.from_bytes(pattern[:8], "little")


def test_what_is_searched_was_written_and_sent(evidence: Evidence, everything: bytes) -> None:
    """No search passes by looking in the wrong place: tasks, batches and reports are there."""
    names = " ".join((*evidence.collecting, *evidence.files))

    for file in ("spool.sqlite-wal", "analyzer.sqlite-wal", "batch-", "operator.token"):
        assert file in names
    for signed in evidence.tasks:
        assert bytes(signed.digest()) in everything
        assert signed.digest().hex().encode() in everything
    assert 3 * (USERS + len(evidence.markers.persons)) == len(evidence.delivered())
    assert evidence.delivered()[0] in everything
    assert len(evidence.markers.addresses) <= len(evidence.ports)
    assert ["collecting analyzer", "collecting shuffler", "over analyzer", "over shuffler"] == (
        sorted(evidence.metrics)
    )
    for page in evidence.metrics.values():
        assert b"\nshuffledp_batches{" in page
    assert 2 == sum(call.method == "DeliverBatch" for call in evidence.relay.calls)


def test_no_planted_value_is_anywhere(evidence: Evidence, everything: bytes, plain: bytes) -> None:
    """
    As digits among other text, or as eight bytes; as four where there is no ciphertext.

    Five digits between two printable characters: fails by chance with probability below 1e-5.
    """
    values = evidence.markers.values
    long = [v.to_bytes(8, order) for v in values for order in ("big", "little")]
    short = [v.to_bytes(4, order) for v in values for order in ("big", "little")]
    digits = b"|".join(b"%d" % value for value in values)

    assert [] == _found(long, everything)
    assert [] == _found(short, plain)
    assert None is re.search(_BESIDE + b"(?:" + digits + b")" + _AFTER, everything)


def test_no_label_is_anywhere_but_in_the_task(evidence: Evidence, everything: bytes) -> None:
    """What is left after every place in the task's own list, which is next to another label."""
    left = everything
    labels = [label.encode() for label in sorted(evidence.markers.labels, key=len, reverse=True)]
    beside = [one + b'","' + other for one in labels for other in labels]
    assert _found(beside, left)
    inside = re.compile(
        b'(?:"|(?<=,))(?:'
        + b"|".join(labels)
        + b')(?=",")|(?<=",")(?:'
        + b"|".join(labels)
        + b')(?=")'
    )

    assert [] == _found(labels, inside.sub(b"", left))


def test_no_person_and_no_header_is_anywhere(evidence: Evidence, everything: bytes) -> None:
    """Names, trace ids as text and as bytes, baggage, request ids, forwarded addresses."""
    markers = evidence.markers
    names = [part.encode() for person in markers.persons for part in person.split()]

    assert [] == _found(names, everything)
    planted = [pattern for headers in markers.headers for pattern in header_patterns(headers)]
    assert [] == _found(planted, everything)
    # The shuffler sends headers of its own, and these alone.
    assert {key for call in evidence.relay.calls for key, _ in call.headers} <= {"user-agent"}


def test_no_client_can_be_found_by_its_address(
    evidence: Evidence, everything: bytes, plain: bytes
) -> None:
    """Address or port, as text; the address as bytes where there is no ciphertext."""
    addresses = evidence.markers.addresses
    raw = [bytes(map(int, address.split("."))) for address in addresses]
    ports = b"|".join(b"%d" % port for port in evidence.ports)

    assert [] == _found([address.encode() for address in addresses], everything)
    assert [] == _found(raw, plain)
    assert [] == _found([each.hex().encode() for each in raw], plain)
    assert None is re.search(rb"(?::|%3[Aa])(?:" + ports + rb")(?![0-9])", everything)


def test_no_submission_id_is_anywhere(evidence: Evidence, everything: bytes) -> None:
    """Not while the shuffler collects, nor later; and at the shuffler no sealed report ever is."""
    shuffler = b"\n".join(
        (
            *evidence.collecting.values(),
            *(raw for name, raw in evidence.files.items() if " shuffler/" in name),
            evidence.logs["shuffler"],
        )
    )
    task = Task.from_bytes(evidence.tasks[0].task_bytes)
    ids = [p for each in evidence.submissions for p in id_patterns(each.submission_id)]
    reports = [report for each in evidence.submissions for report in sealed_reports(each, task)]

    assert [] == _found(ids, everything)
    assert [] == _found(reports, shuffler)
    assert reports[:30] == _found(reports[:30], everything)


def test_no_time_finer_than_the_batch_is_anywhere(
    evidence: Evidence, everything: bytes, plain: bytes
) -> None:
    """
    As text or bytes, seconds to nanoseconds, and no column of a database holds one.

    What remains is the system's own: the time of last change of a database's file. At the analyzer
    it is the time of the batch; at the shuffler it is that of the last submission, which its log
    collector and its disk know anyway, and which goes to nobody.
    """
    begun, ended = evidence.begun, evidence.ended
    moments = [
        number
        for number in evidence.numbers
        for unit in (1, 1e3, 1e6, 1e9)
        if begun - 1 <= number / unit <= ended + 1
    ]

    dateless = re.sub(rb'"since": ?[0-9.e+]+', b"", everything)
    assert dateless != everything
    assert [] == _found(time_patterns(begun, ended), dateless)
    assert [] == _found(short_time_patterns(begun, ended), plain)
    assert [] == _packed_times(plain, begun - 1, ended + 1)
    assert [] == moments


def _packed_times(data: bytes, first: float, last: float) -> list[str]:
    """
    Return the layouts of 8 bytes in which a time between two is in the data: seconds with
    fractions, and whole seconds, milliseconds or microseconds.

    Finds one of 10 seconds in .2 MB of random bytes with probability 1e-6.
    """
    found = []
    for layout, units in (("i8", (1, 10**3, 10**6)), ("f8", (1,))):
        for order, start in itertools.product("<>", range(8)):
            whole = (len(data) - start) // 8 * 8
            numbers = np.frombuffer(data[start : start + whole], dtype=order + layout)
            for unit in units:
                within = (numbers >= first * unit) & (numbers <= last * unit)
                found += [f"{order}{layout} in 1/{unit} s"] * int(within.sum())
    return found


def test_the_search_for_packed_times_finds_one_wherever_it_lies() -> None:
    """In every layout that is searched for."""
    now = 1_900_000_000
    for layout, unit in (("<q", 1), (">q", 10**3), ("<d", 1), (">d", 1)):
        assert _packed_times(b"abc" + struct.pack(layout, now * unit) + b"d", now, now + 1)
    assert not _packed_times(bytes(100), now, now + 1)


def test_an_operators_token_is_in_its_own_file_alone(evidence: Evidence) -> None:
    """The analyzer's and the shuffler's: neither logged nor sent."""
    tokens = {raw for name, raw in evidence.files.items() if name.endswith("/operator.token")}
    elsewhere = {n: raw for n, raw in evidence.files.items() if not n.endswith("/operator.token")}
    places = (*elsewhere.values(), *evidence.logs.values(), relayed(evidence.relay))

    assert 2 == len(tokens)
    assert [] == _found(list(tokens), b"\n".join(places))


def test_every_search_would_find_what_it_looks_for(evidence: Evidence, everything: bytes) -> None:
    """Each pattern, written into the logs, is found there."""
    markers = evidence.markers
    patterns = [
        *(pattern for headers in markers.headers[:5] for pattern in header_patterns(headers)),
        *id_patterns(evidence.submissions[0].submission_id),
        *time_patterns(evidence.begun, evidence.ended),
    ]

    assert patterns == _found(patterns, everything + b"\n".join(patterns))
    assert str(int(evidence.begun)).encode() in patterns
    assert str(int(evidence.begun * 1000)).encode().startswith(tuple(patterns))


def test_the_services_log_nothing_but_their_own_records(evidence: Evidence) -> None:
    """GRPC's traces were asked for by the environment; a sentence says that they are left out."""
    for party, log in evidence.logs.items():
        first, *lines = log.decode().splitlines()

        assert f"{party}: GRPC_TRACE and GRPC_VERBOSITY left out" in first
        assert all(line.startswith('{"level": ') for line in lines)


_TRACED = """
import asyncio, grpc, sys
async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            await channel.unary_unary("/a/b")(b"", metadata=(("traceparent", sys.argv[1]),))
        except grpc.aio.AioRpcError:
            pass
    await server.stop(None)
asyncio.run(main())
"""


def test_grpc_would_have_logged_headers_and_peers() -> None:
    """With the same variables, a program that leaves them in place logs what was searched for."""
    marker = "00-planted-in-a-header-01"
    outcome = subprocess.run(
        [sys.executable, "-c", _TRACED, marker], env=LOUD, capture_output=True, check=True
    )

    assert marker.encode() in outcome.stderr
    assert b"ipv4:127.0.0.1:" in outcome.stderr


def test_the_analyzers_order_tells_nothing_of_the_order_of_arrival(evidence: Evidence) -> None:
    """
    No rank correlation of places, and no more neighbours of one user than chance puts together.

    Services draw as they do in production, so no seed can be stated: six standard deviations fail
    by chance with probability below 2e-9, and 24 neighbours, where two are expected, below 1e-16.
    """
    task = Task.from_bytes(evidence.tasks[0].task_bytes)
    sent = [r for submission in evidence.submissions for r in sealed_reports(submission, task)]
    known = set(sent)
    delivered = [report for report in evidence.delivered() if report in known]
    owner = {
        report: number
        for number, submission in enumerate(evidence.submissions)
        for report in sealed_reports(submission, task)
    }

    assert known == set(delivered)
    assert abs(rank_correlation(sent, delivered)) < 6
    assert neighbours(delivered, owner) < 24
    # Order of arrival, and any that keeps a user's reports together, would be seen.
    assert rank_correlation(sent, sent) > 6
    assert neighbours(sent, owner) >= USERS
