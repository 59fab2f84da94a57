"""
Only ciphertexts cross the shuffler, whatever logging and tracing is on.

Two batches run over three child processes at level DEBUG, with all of gRPC's traces requested and
with the headers of tracing libraries and gateways. All files, logs and metrics of shuffler and
analyzer, and all bytes between them, are searched for planted markers; SHUFFLEDP_MARKERS_SEED
chooses these. `tests/integration/test_observed_services.py` searches for submissions and order.

Allowed, and not searched for:

* a task's labels where they stand in the task itself, which everybody fetches;
* the task's deadline, which lies in the future;
* when a key changed its state, in keys.json: the time of a start, not of a report;
* the operator's token in the analyzer's own file of that name;
* files of the user agent: it is the person's own;
* the sealed reports at the analyzer: they are what is delivered.
"""

import asyncio
import itertools
import json
import re
import struct
from typing import get_args

import numpy as np
import pytest

from shuffledp.audit.harness.byte_search import kinds_found
from shuffledp.common.runtime.logs import Field
from shuffledp.common.wire.batches import delivery_from_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2
from tests.support.telemetry_run import PERSONS, USERS, Evidence, run

_BESIDE = rb"(?<=[ -\-/:-@G-`g-~])"
_AFTER = rb"(?=[ -/:-@G-`g-~])"
"""Printable, and no digit of a number, decimal or hexadecimal."""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Run the batches once for all searches."""
    return asyncio.run(run(tmp_path_factory.mktemp("telemetry")))


@pytest.fixture(scope="module")
def everything(evidence: Evidence) -> bytes:
    """All that was written or sent."""
    return evidence.everything()


@pytest.fixture(scope="module")
def plain(evidence: Evidence) -> bytes:
    """The same without ciphertexts: short patterns are searched for here."""
    return evidence.without_ciphertexts()


def _check_that_both_batches_are_searched(evidence: Evidence, everything: bytes) -> None:
    """Both tasks, databases, keys, metrics and deliveries are there."""
    names = " ".join(evidence.files)

    for file in ("spool.sqlite-wal", "analyzer.sqlite-wal", "batch-", "operator.token"):
        assert file in names
    for signed in evidence.tasks:
        assert bytes(signed.digest()) in everything
        assert signed.digest().hex().encode() in everything
    assert len(evidence.markers.addresses) <= len(evidence.ports)
    assert 4 == len(evidence.metrics)
    assert all(b"\nshuffledp_batches{" in page for page in evidence.metrics.values())
    deliveries = [call for call in evidence.proxy.calls if call.method == "BeginDelivery"]
    reports = {3 * (USERS + PERSONS), 2 * len(evidence.markers.addresses)}
    begun = [analyzer_pb2.BeginDeliveryRequest.FromString(one.requests[0]) for one in deliveries]
    assert reports == {delivery_from_wire(request)[0].n_reports for request in begun}


def _check_planted_markers(evidence: Evidence, everything: bytes) -> None:
    """Values, labels, persons, trace ids, addresses, tokens and times, as text and as bytes."""
    label = b"(?:" + "|".join(evidence.markers.labels).encode() + b")"
    in_a_list = label + b'(?=",")|(?<=",")' + label  # a page of a database may end beside one
    left = re.sub(in_a_list, b"", re.sub(rb'"(?:since|wall)": ?[0-9.e+]+', b"", everything))
    for name, content in evidence.files.items():
        if name.endswith("/operator.token"):
            left = left.replace(b"\n" + content + b"\n", b"\n", 1)

    assert set() == kinds_found(evidence.planted(), left)
    # The shuffler sends no headers but its own.
    assert {key for call in evidence.proxy.calls for key, _ in call.headers} <= {"user-agent"}


def _check_that_every_marker_would_be_found(evidence: Evidence, everything: bytes) -> None:
    """Each pattern is found when it is appended."""
    every = sorted({pattern for some in evidence.planted().values() for pattern in some})
    patterns = {f"{number}": [pattern] for number, pattern in enumerate(every)}

    assert patterns.keys() == kinds_found(patterns, everything + b"\n".join(every))
    assert str(int(evidence.begun * 1000)).encode().startswith(tuple(every))


def _check_short_markers(evidence: Evidence, everything: bytes, plain: bytes) -> None:
    """
    Neither values and ports as digits are found nor, outside ciphertexts, values, addresses and
    seconds as four bytes, or times in any layout of eight.

    Five digits between two printable characters: fails by chance with probability below 1e-5.
    """
    begun, ended = int(evidence.begun) - 1, int(evidence.ended) + 1
    addresses = [bytes(map(int, one.split("."))) for one in evidence.markers.addresses]
    numbers = (*evidence.markers.values, *range(begun, ended + 1))
    words = [number.to_bytes(4, o) for number in numbers for o in ("big", "little")]
    digits = b"|".join(b"%d" % value for value in evidence.markers.values)
    ports = b"|".join(b"%d" % port for port in evidence.ports)

    assert None is re.search(_BESIDE + b"(?:" + digits + b")" + _AFTER, everything)
    assert None is re.search(rb"(?::|%3[Aa])(?:" + ports + rb")(?![0-9])", everything)
    assert [] == [one for one in (*words, *addresses) if one in plain]
    assert [] == [one for one in addresses if one.hex().encode() in plain]
    assert [] == _packed_times(plain, begun, ended)
    assert [] == [
        number
        for number in evidence.numbers
        for unit in (1, 1e3, 1e6, 1e9)
        if begun <= number / unit <= ended
    ]


def test_no_planted_marker_is_found(evidence: Evidence, everything: bytes, plain: bytes) -> None:
    """
    Nor a short one, and each would be found, in bytes that hold both batches.

    One test, so that one worker runs the batches.
    """
    _check_that_both_batches_are_searched(evidence, everything)
    _check_planted_markers(evidence, everything)
    _check_that_every_marker_would_be_found(evidence, everything)
    _check_short_markers(evidence, everything, plain)


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
    """A time is found in every layout that is searched."""
    now = 1_900_000_000
    for layout, unit in (("<q", 1), (">q", 10**3), ("<d", 1), (">d", 1)):
        assert _packed_times(b"abc" + struct.pack(layout, now * unit) + b"d", now, now + 1)
    assert not _packed_times(bytes(100), now, now + 1)


def test_the_services_log_nothing_but_their_own_records(evidence: Evidence) -> None:
    """Records have allowed fields only; gRPC's traces are left out, and the first line says so."""
    events = set[str]()
    for party, log in evidence.logs.items():
        first, *lines = log.decode().splitlines()
        records = [json.loads(line) for line in lines]
        events |= {record["event"] for record in records}

        assert f"{party}: GRPC_TRACE and GRPC_VERBOSITY ignored" in first
        assert {*itertools.chain(*records)} <= {*get_args(Field), "level", "event"}
    assert {"batch moved on", "batch staged", "batch released"} <= events
