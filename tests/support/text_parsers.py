"""Parsers of text from command lines, the environment and pages of metrics."""

import re
from functools import partial
from typing import Final

from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.errors import TaskError
from shuffledp.common.messages.submission import (
    label_numbers,
    parse_item,
    parse_numbers,
    parse_pairs,
)
from shuffledp.common.runtime.http_edge import read_json
from shuffledp.common.runtime.peer import forwarded_address, networks
from shuffledp.common.runtime.settings import load
from shuffledp.common.transparency.checkpoint import NoteKey
from shuffledp.deploy.commands.options import parse_cap, parse_shares, task_digest
from shuffledp.deploy.datasets.sources import dataset
from shuffledp.deploy.load.target import usage_from
from shuffledp.deploy.tasks.value_parser import parse_breakdown, parse_range, parse_tables
from shuffledp.lab.accountant.query import parse_distribution
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from shuffledp.shuffler.settings import ShufflerSettings
from tests.support.parsers import Parser, typed
from tests.support.transparency import SPECIFIED_KEY

_PREFIX: Final = "SHUFFLEDP_SHUFFLER"
_ENVIRONMENT: Final = """STATE_DIRECTORY=state\nANALYZER=127.0.0.1:1\nANALYZER_IDENTITY=00
PLAINTEXT=true\nMINIMUM_BATCH=3\nMOST_DUMMIES=10\nOPENING_PROCESSES=2\nLOG_LEVEL=DEBUG
LISTEN=127.0.0.1:0"""
_METRICS: Final = b"""# HELP shuffledp_process_cpu_seconds_total CPU.
# TYPE shuffledp_process_cpu_seconds_total counter
shuffledp_process_cpu_seconds_total 12.5
# TYPE shuffledp_process_resident_memory_bytes gauge
shuffledp_process_resident_memory_bytes 3.0e+06
# TYPE other histogram
other_bucket{le="0.5",name="a \\"b\\""} 7 1395066363000
"""
_LABELS: Final = label_numbers(("20", "a, b", "\u00e9"))


def _data_set(name: str) -> object:
    """Read a data set by name, unless its items would take hundreds of megabytes."""
    if re.search(r"\d{6}", name):
        raise TaskError("a data set of too many items for a test")
    return dataset(name, 100)


def _environment(text: str) -> object:
    """Read settings from variables, one per line."""
    variables = (line.partition("=") for line in text.split("\n"))
    environment = {f"{_PREFIX}_{name}": value for name, _, value in variables}
    return load(ShufflerSettings, None, environment, _PREFIX)


def _forwarded(text: str) -> object:
    """Read X-Forwarded-For."""
    return forwarded_address(text.encode("utf-8", "surrogateescape"), networks(["10.0.0.0/8"]))


PARSERS: Final = (
    typed(
        "identity in hexadecimal",
        partial(PublicIdentity.from_hex, whose="the identity"),
        *("ab" * 32, "0123" * 16),
    ),
    typed("task's digest", task_digest, "00" * 32),
    typed("verifier key", lambda text: NoteKey.parse(text).to_text(), SPECIFIED_KEY),
    typed("pairs", lambda text: parse_pairs(text, {}, 20), "3:0.5, 17:1", ""),
    typed("item", lambda text: parse_item(text, _LABELS, 3), "20", "#2", "e\u0301"),
    typed("pairs by label", lambda text: parse_pairs(text, _LABELS, 3), "20:1, a, b: 2", "#0:1"),
    typed("environment", _environment, _ENVIRONMENT),
    typed(
        *("distribution of dummies", parse_distribution, "binomial:10,0.5", "poisson:3"),
        *("negative-binomial:2,5.5", "groups:2,10,0.5"),
    ),
    typed("breakdown", parse_breakdown, "country=DE,FR", "version=1, 2"),
    typed("tables", partial(parse_tables, pairs="1:2"), "20,20,5", "2,3"),
    typed("range", parse_range, "18:65", "-1e3:2.5"),
    typed("numbers", parse_numbers, "0.5,0.3,0.7,2"),
    typed("cap", parse_cap, "3", "none", "inf"),
    typed("expected shares", parse_shares, "0.05,0.03", "1"),
    typed(
        *("data set by name", _data_set),
        *("zipf:20", "zipf:20,1.5", "uniform:30", "covid_us_states"),
        share=1,
    ),
    typed("forwarded address", _forwarded, "192.0.2.1, 10.0.0.1", "[2001:db8::1]:4711, unknown"),
    Parser(
        name="request in JSON",
        read=partial(read_json, shuffler_pb2.SubmitRequest.FromString),
        seeds=(b'{"taskDigest": "AAEC", "envelope": "+/8=", "token": ""}', b"{}"),
        form="json",
    ),
    Parser(name="page of metrics", read=usage_from, seeds=(_METRICS,), form="text"),
)
