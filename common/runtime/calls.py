"""
Every call of every service: who may make it, and how much of it at once. A table.

A call that is not in the table is refused, whoever makes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from types import MappingProxyType
from typing import Final

from common.task import MAX_ENVELOPE_BYTES


class Caller(Enum):
    """Who may make a call."""

    ANYONE = "anyone"
    SHUFFLER = "shuffler"
    """Whose certificate names it `shuffler`."""
    OPERATOR = "operator"
    """Whose certificate names it `operator`, and who shows the operator's token."""
    TOKEN_HOLDER = "token holder"  # noqa: S105  # no password
    """Who shows the operator's token, at a server that devices call without a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What calls of one kind may take, all together and each."""

    places: int
    """Calls at once; one more is refused, for the moment."""
    share: int
    """Of them, those of one connection."""
    read_seconds: float
    """Until a request has come whole: a client that trickles is cut off."""
    seconds: float
    """Until the answer."""


@unique  # kinds of equal limits would be one kind
class Kind(Enum):
    """Calls that share places. A flood of one kind takes no place from another."""

    SHORT = Limits(places=2048, share=512, read_seconds=10, seconds=30)
    """About one user or one task."""
    BULK = Limits(places=16, share=4, read_seconds=60, seconds=300)
    """Many users' submissions, up to 4 MiB."""
    DELIVERY = Limits(places=4, share=4, read_seconds=600, seconds=600)
    """A batch, in chunks; its chunks are read as it goes."""
    OPERATING = Limits(places=16, share=8, read_seconds=10, seconds=600)
    ANSWER = Limits(places=1024, share=1024, read_seconds=10, seconds=600)
    """A person's own call to their device."""
    HEALTH = Limits(places=64, share=16, read_seconds=5, seconds=10)


READING_PLACES: Final = 64
"""Messages of short calls that are read at once; others wait in line, with nothing read of them."""
READING_SHARE: Final = 4
"""Of them, those of one connection."""
LONG_MESSAGE: Final = MAX_ENVELOPE_BYTES // 16
"""A longer message, in bytes, keeps its reading place until it is answered: what short calls hold
is at most 2048 times this and 64 times the longest message."""


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table."""

    caller: Caller
    kind: Kind


CALLS: Final[Mapping[str, Call]] = MappingProxyType(
    {
        "/shuffledp.v1.UserAgent/Contribute": Call(Caller.ANYONE, Kind.ANSWER),
        "/shuffledp.v1.UserAgent/GetReceipt": Call(Caller.ANYONE, Kind.ANSWER),
        "/shuffledp.v1.Shuffler/FetchTask": Call(Caller.ANYONE, Kind.SHORT),
        "/shuffledp.v1.Shuffler/Submit": Call(Caller.ANYONE, Kind.SHORT),
        "/shuffledp.v1.Shuffler/SubmitBulk": Call(Caller.ANYONE, Kind.BULK),
        "/shuffledp.v1.Shuffler/GetBatchStatus": Call(Caller.ANYONE, Kind.SHORT),
        "/shuffledp.v1.Shuffler/GetInclusion": Call(Caller.ANYONE, Kind.SHORT),
        "/shuffledp.v1.Shuffler/CloseBatch": Call(Caller.TOKEN_HOLDER, Kind.OPERATING),
        "/shuffledp.v1.Analyzer/CreateTask": Call(Caller.OPERATOR, Kind.OPERATING),
        "/shuffledp.v1.Analyzer/RegisterSentinels": Call(Caller.OPERATOR, Kind.OPERATING),
        "/shuffledp.v1.Analyzer/GetTask": Call(Caller.SHUFFLER, Kind.SHORT),
        "/shuffledp.v1.Analyzer/DeliverBatch": Call(Caller.SHUFFLER, Kind.DELIVERY),
        "/shuffledp.v1.Analyzer/GetResult": Call(Caller.OPERATOR, Kind.OPERATING),
        "/shuffledp.v1.Analyzer/GetLedger": Call(Caller.OPERATOR, Kind.OPERATING),
        "/grpc.health.v1.Health/Check": Call(Caller.ANYONE, Kind.HEALTH),
    }
)


def asks_for_certificates(service: str) -> bool:
    """Say whether a service's server lets nobody connect without a certificate."""
    return any(
        method.startswith(f"/{service}/") and call.caller in {Caller.SHUFFLER, Caller.OPERATOR}
        for method, call in CALLS.items()
    )
