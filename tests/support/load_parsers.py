"""What the load generator reads: prepared files, pages of metrics, and its options."""

from functools import cache
from pathlib import Path
from typing import Final

from deploy.load.behaviour import Behaviour, shares_from
from deploy.load.plan import Crowd, ramp_from
from deploy.load.usage import remote_source, usage_from
from deploy.load.users import SealedUsers, seal
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
    crowd = Crowd(n_users=7, shares={kind: 1 / 7 for kind in Behaviour if kind}, dataset="zipf:30")
    case = published(domain_size=30, buckets=5, target_size=100)
    seal(case.signed, crowd, seed=3, processes=1).save(path)
    return path.read_bytes()


def _used(path: Path) -> object:
    """Read a file, and every envelope in it."""
    users = SealedUsers.load(path)
    return [users.submissions(user) for user in range(users.n_users)]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


LOAD_PARSERS: Final = (
    file_parser(
        "prepared users",
        "raw.users",
        _used,
        (_prepared(),),
        "binary",
        "deploy.load.users.SealedUsers.load",
        share=2,
    ),
    Parser(
        name="page of metrics",
        read=usage_from,
        seeds=(_PAGE,),
        form="text",
        covers=("deploy.load.usage.usage_from",),
    ),
    Parser(
        name="address of metrics",
        read=lambda raw: remote_source(_text(raw)),
        seeds=(b"shuffler=http://127.0.0.1:9/metrics",),
        form="text",
        covers=("deploy.load.usage.remote_source",),
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
        read=lambda raw: ramp_from(_text(raw)).rates,
        seeds=(b"100:2000:10",),
        form="text",
        covers=("deploy.load.plan.ramp_from",),
        share=4,
    ),
)
