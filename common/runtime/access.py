"""
Access to every method of every service: allowed callers, limits, operator tokens, local addresses.

A method that is not in the table is refused.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, unique
from types import MappingProxyType
from typing import Final

from shuffledp.common.crypto.secret import Secret
from shuffledp.common.errors import CallerError, CredentialError, SettingsError
from shuffledp.common.limits import MAX_ENVELOPE_BYTES
from shuffledp.common.runtime.peer import parse_address

CALLER_NAMES: Final[ContextVar[frozenset[str] | None]] = ContextVar("caller_names", default=None)
"""Verified names of the certificate of a call's caller; None if callers have none."""
_TOKEN_BYTES: Final = 32
_TOKEN_TEXT: Final = re.compile(rb"[0-9a-f]{%d}\n?" % (2 * _TOKEN_BYTES))


class OperatorToken(Secret):
    """A service's operator token, stored in its state directory."""

    __slots__ = ("_token",)

    def __init__(self, text: bytes) -> None:
        """Parse the content of operator.token; raise SettingsError if it is not a token."""
        if _TOKEN_TEXT.fullmatch(text) is None:
            raise SettingsError(
                f"operator.token must hold {2 * _TOKEN_BYTES} hexadecimal digits; remove the file, "
                "and the next start creates a new one"
            )
        self._token = text.strip()

    @staticmethod
    def generate() -> bytes:
        """Draw a new token from the operating system, as hexadecimal text."""
        return secrets.token_hex(_TOKEN_BYTES).encode()

    def check(self, shown: str | None) -> None:
        """Check a caller's token in constant time; raise CredentialError unless it is right."""
        if shown is None:
            raise CredentialError("this call needs an operator token")
        if not secrets.compare_digest(shown.encode(), self._token):
            raise CredentialError(
                "wrong operator token; this service's token is in STATE/operator.token"
            )


class Caller(Enum):
    """The callers that a method allows."""

    ANYONE = "anyone"
    DEVICE = "device"
    """Anyone, over HTTP too: a call that a device needs."""
    SHUFFLER = "shuffler"
    """A caller whose certificate names `shuffler`."""
    SENDER = "shuffler or relay"
    """A caller whose certificate names one of them: the sender of a batch."""
    FRONT_END = "front-end"
    """A front-end of the same party, whose certificate is by the party's own authority."""
    WORKER = "worker"
    """A worker of the same party, likewise."""
    OPERATOR = "operator"
    """A caller whose certificate names `operator`, with the operator token."""
    TOKEN_HOLDER = "token holder"  # noqa: S105  # not a password
    """A caller with the operator token, at a server that devices call without a certificate."""


OPEN: Final = frozenset({Caller.ANYONE, Caller.DEVICE})
"""Callers who need no certificate and no token."""
_CERTIFIED: Final = frozenset(
    {Caller.SHUFFLER, Caller.SENDER, Caller.FRONT_END, Caller.WORKER, Caller.OPERATOR}
)
_WITH_TOKEN: Final = frozenset({Caller.OPERATOR, Caller.TOKEN_HOLDER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the calls of one kind, in total and per connection; see also `concurrency.py`."""

    calls: int
    """Maximum concurrent calls."""
    peer_calls: int
    """Maximum concurrent calls of one connection."""
    read_seconds: float
    """Maximum wait in seconds for a read slot, and then for the whole request; the latter is
    shorter while other calls wait for slots."""
    seconds: float
    """Maximum seconds until the answer, waiting and reading included."""
    reads: int = 0
    """Read slots: maximum requests read at once; others wait. If 0, the number is unlimited."""
    peer_reads: int = 0
    """Maximum requests of one connection read at once."""
    long_answers: bool = False
    """Whether a call keeps its read slot until its answer is ready, or until a long one is sent."""
    minor: bool = False
    """Whether refusals of these calls do not count as overload."""


@unique  # an Enum would merge kinds with equal limits
class CallKind(Enum):
    """Kinds of calls. Each kind has its own limits, so a flood of one does not block another."""

    SHORT = Limits(calls=2048, peer_calls=64, read_seconds=10, seconds=30, reads=64, peer_reads=4)
    """Calls about one user, with short answers."""
    TASK = Limits(
        calls=1024,
        peer_calls=32,
        read_seconds=10,
        seconds=30,
        reads=64,
        peer_reads=2,
        long_answers=True,
    )
    """Requests for a task, which may have 2 MiB."""
    BULK = Limits(calls=128, peer_calls=4, read_seconds=60, seconds=300, reads=32, peer_reads=4)
    """Many users' submissions or messages, up to 4 MiB per call."""
    DELIVERY = Limits(calls=4, peer_calls=4, read_seconds=3600, seconds=3600)
    """The delivery of a batch, whose parts are read in chunks."""
    ANALYZER_OPERATION = Limits(calls=16, peer_calls=8, read_seconds=10, seconds=600)
    """An operator's calls to the analyzer."""
    SHUFFLER_OPERATION = Limits(calls=16, peer_calls=8, read_seconds=10, seconds=30)
    """An operator's calls to the shuffler or the issuer."""
    INTERNAL = Limits(calls=256, peer_calls=128, read_seconds=10, seconds=60)
    """A front-end's calls to the coordinator."""
    JOB = Limits(calls=512, peer_calls=256, read_seconds=10, seconds=60)
    """Workers' calls to their coordinator; devices, through front-ends, cannot fill these."""
    CONTRIBUTION = Limits(calls=1024, peer_calls=1024, read_seconds=10, seconds=600)
    """A person's own call to their device."""
    CHECK = Limits(calls=32, peer_calls=4, read_seconds=20, seconds=120, reads=8, peer_reads=2)
    """Tasks to check, up to 4 MiB per call. Only those that the log's key signed take long."""
    HEALTH = Limits(calls=64, peer_calls=2, read_seconds=5, seconds=10)
    REFLECTION = Limits(calls=8, peer_calls=1, read_seconds=5, seconds=60, minor=True)
    """A bidirectional stream: a request is read after the previous answer is sent."""


LONG_MESSAGE: Final = MAX_ENVELOPE_BYTES // 16
"""Maximum bytes of a short message. A call with a longer request holds its read slot until it is
answered, so that at most `reads` long requests of a kind are in memory; see also long_answers."""


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the access table."""

    caller: Caller
    kind: CallKind


_TABLE: Final = (
    (Caller.ANYONE, CallKind.CONTRIBUTION, "UserAgent", "Contribute GetQuestion GetReceipt"),
    (Caller.ANYONE, CallKind.CONTRIBUTION, "UserAgent", "GetLogEvidence"),
    (Caller.DEVICE, CallKind.TASK, "Shuffler", "FetchTask"),
    (Caller.DEVICE, CallKind.SHORT, "Shuffler", "GetBatchStatus Submit GetInclusion"),
    (Caller.ANYONE, CallKind.BULK, "Shuffler", "SubmitBulk"),
    (
        *(Caller.TOKEN_HOLDER, CallKind.SHUFFLER_OPERATION, "Shuffler"),
        "GetBatchProgress CloseBatch DropBatch",
    ),
    (Caller.FRONT_END, CallKind.INTERNAL, "ShufflerCoordinator", "GetIdentity GetBatch RelayLog"),
    (Caller.ANYONE, CallKind.SHORT, "Witness", "AddCheckpoint"),
    (Caller.ANYONE, CallKind.CHECK, "CheckingWitness", "AddEntries CheckTask"),
    (Caller.SENDER, CallKind.TASK, "Analyzer", "GetLog GetTask"),
    (Caller.SENDER, CallKind.DELIVERY, "Analyzer", "BeginDelivery DeliverPart FinishDelivery"),
    (Caller.SHUFFLER, CallKind.TASK, "Relay", "GetTask"),
    (Caller.SHUFFLER, CallKind.DELIVERY, "Relay", "BeginDelivery DeliverPart FinishDelivery"),
    (Caller.OPERATOR, CallKind.SHORT, "Relay", "GetBatchStatus"),
    (Caller.OPERATOR, CallKind.SHUFFLER_OPERATION, "Relay", "DropBatch"),
    (
        *(Caller.OPERATOR, CallKind.ANALYZER_OPERATION, "Analyzer"),
        "CreateTask RegisterSentinels GetResult ListTasks DescribeTask DecideBatch GetLedger",
    ),
    (Caller.TOKEN_HOLDER, CallKind.SHUFFLER_OPERATION, "Issuer", "CreateTokenKey"),
    (Caller.DEVICE, CallKind.SHORT, "Issuer", "IssueToken"),
    (Caller.ANYONE, CallKind.BULK, "Issuer", "IssueTokens"),
    (Caller.WORKER, CallKind.JOB, "Jobs", "GetJob"),
)
"""Methods of a service with the same callers and limits."""
CALLS: Final[Mapping[str, Call]] = MappingProxyType(
    {
        f"/shuffledp.v1.{service}/{method}": Call(caller, kind)
        for caller, kind, service, methods in _TABLE
        for method in methods.split()
    }
    | {
        "/grpc.health.v1.Health/Check": Call(Caller.ANYONE, CallKind.HEALTH),
        # Served only if the settings enable it.
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Call(
            Caller.ANYONE, CallKind.REFLECTION
        ),
    }
)


def asks_for_certificates(service: str) -> bool:
    """Return whether callers of a service need a certificate to connect over TLS."""
    return any(call.caller in _CERTIFIED for call in _calls_of(service))


def _calls_of(service: str) -> list[Call]:
    return [call for name, call in CALLS.items() if name.startswith(f"/{service}/")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The limits of each connection to a server."""

    streams: int
    """Maximum concurrent calls, refused ones included; gRPC clients delay further calls."""
    age_seconds: float
    """Seconds until the caller must reconnect, which gRPC clients do automatically."""
    grace_seconds: float
    """Seconds from that age until the connection is closed."""


AGE_SECONDS: Final = 300.0
"""Maximum age of a device's connection, and the period for which an address counts as one."""
_CERTIFIED_AGE: Final = 3600.0
"""Seconds; also the maximum time for which an expired certificate is still accepted."""
MARGIN_SECONDS: Final = 10.0
"""Seconds added to the longest call, for its answer to arrive."""


def connections_of(service: str) -> Connections:
    """Return the limits of a service's connections. No allowed call outlives its connection."""
    kinds = [call.kind.value for call in _calls_of(service)]
    return Connections(
        streams=max(kind.peer_calls for kind in kinds),
        age_seconds=_CERTIFIED_AGE if asks_for_certificates(service) else AGE_SECONDS,
        grace_seconds=max(kind.seconds for kind in kinds) + MARGIN_SECONDS,
    )


_BEARER: Final = "Bearer "


def check_caller(
    allowed: Caller, names: frozenset[str] | None, shown: str | None, token: OperatorToken | None
) -> None:
    """
    Check that a caller may make a call.

    `names` are the verified names of the caller's certificate; None if callers have none.
    `shown` is the token that came with the call. `token` is the service's own, or None if it has no
    operator.

    Raises:
        CallerError: The certificate does not name the party that the call requires.
        CredentialError: The token is missing or wrong, or the service has no operator.
    """
    named = allowed.value.split(" or ")
    if allowed in _CERTIFIED and names is not None and names.isdisjoint(named):
        raise CallerError(
            f"this call is for the {allowed.value}: the caller's certificate names "
            f"{', '.join(sorted(names)) or 'nobody that its authority may certify'}"
        )
    if allowed in _WITH_TOKEN:
        if token is None:
            raise CredentialError("this service has no operator")
        token.check(shown)


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Return the bearer token in a call's metadata; None if there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value.startswith(_BEARER):
            return value.removeprefix(_BEARER)
    return None


def is_local(address: str) -> bool:
    """Return whether an address stays on this machine: a Unix socket or a loopback address."""
    host = address.rpartition(":")[0].strip("[]").removesuffix(".")
    if address.startswith("unix:") or host.casefold() == "localhost":
        return True
    number = parse_address(host)
    return number is not None and number.is_loopback
