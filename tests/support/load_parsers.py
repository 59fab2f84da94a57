"""What the load generator reads: prepared files, pages of metrics, and its options."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from deploy.load import prepared_file
from deploy.load.behaviour import Behaviour, shares_from
from deploy.load.plan import Crowd, ramp_from
from deploy.load.sealing import prepare
from deploy.load.usage import look_from, pages_from, remote_source
from tests.support.file_parsers import directory, file_parser
from tests.support.parsers import Parser
from tests.support.tasks import published

_PAGE: Final = b"""# HELP shuffledp_process_cpu_seconds_total CPU.
# TYPE shuffledp_process_cpu_seconds_total counter
shuffledp_process_cpu_seconds_total 12.5
# TYPE shuffledp_process_resident_memory_bytes gauge
shuffledp_process_resident_memory_bytes 3.0e+06
# TYPE other histogram
other_bucket{le="0.5",name="a \\"b\\""} 7 1395066363000
"""


@cache
def _prepared() -> bytes:
    """Seven users, one of each behaviour."""
    path = directory() / "made.users"
    prepare(
        path,
        published(domain_size=30, buckets=5, target_size=100).signed,
        crowd=Crowd(n_users=7, shares={kind: 1 / 7 for kind in Behaviour if kind}),
        dataset_name="zipf:30",
        seed=3,
        processes=1,
    )
    return path.read_bytes()


def _used(path: Path) -> object:
    """Read a file, and every envelope in it."""
    prepared = prepared_file.read(path)
    return prepared.values.sum(), prepared.envelopes.sum()


def _mended(path: Path) -> object:
    """Read a file whose hash fits whatever stands before it: otherwise little would be read."""
    raw = path.read_bytes()[:-32]
    path.write_bytes(raw + hashlib.sha256(raw).digest())
    return _used(path)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


LOAD_PARSERS: Final = (
    file_parser(
        "prepared users",
        "raw.users",
        _used,
        (_prepared(),),
        "binary",
        "deploy.load.prepared_file._read",
        share=2,
    ),
    file_parser(
        "prepared users with a fitting hash",
        "mended.users",
        _mended,
        (_prepared(),),
        "binary",
        "deploy.load.prepared_file._read",
    ),
    Parser(
        name="page of metrics",
        read=look_from,
        seeds=(_PAGE,),
        form="text",
        covers=("deploy.load.usage.look_from",),
    ),
    Parser(
        name="address of metrics",
        read=lambda raw: remote_source(pages_from([_text(raw)])),
        seeds=(b"shuffler=http://127.0.0.1:9/metrics",),
        form="text",
        covers=("deploy.load.usage.pages_from", "deploy.load.usage.remote_source"),
        share=4,
    ),
    Parser(
        name="shares of misbehaving users",
        read=lambda raw: shares_from(_text(raw)),
        seeds=(b"0.1", b"malformed=.02,duplicate=0.5"),
        form="text",
        covers=("deploy.load.behaviour.shares_from",),
        share=4,
    ),
    Parser(
        name="ramp",
        read=lambda raw: ramp_from(_text(raw), seconds=1.0, p99_limit=1.0).rates,
        seeds=(b"100:2000:10",),
        form="text",
        covers=("deploy.load.plan.ramp_from",),
        share=4,
    ),
)
