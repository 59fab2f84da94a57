"""
What anybody may do to running services, and what they tell: calls, statuses, errors, metrics.

Each call that is tried here asks for nothing that exists, so that it changes nothing if it is
served; the tape leaves it out.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import grpc

from analyzer.settings import AnalyzerSettings
from common.crypto.signing import SignedTask
from common.errors import SettingsError
from common.messages.inclusion_proof import PREFIX_BYTES
from common.runtime.clock import SystemClock
from common.runtime.rpc import open_channel
from common.runtime.tls import TlsIdentity, development_files
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.log_lines import LogLines
from deploy.audit.services.facts import Fact
from deploy.audit.services.people import People
from deploy.audit.services.tape import METHODS, Party, Tape
from deploy.audit.services.trio import SUBMISSIONS_EACH, Trio
from protos.shuffledp.v1 import shuffler_pb2
from shuffler.settings import ShufflerSettings
from user_agent.settings import UserAgentSettings

Certificate = Literal["none", "plaintext", "foreign", "shuffler", "operator", "user_agent"]
Token = Literal["none", "empty", "a part", "and more", "another's", "right"]

TOKENS: Final[tuple[Token, ...]] = get_args(Token)
MARKER: Final = "the value is 7305914826"
"""In errors that are raised on purpose: neither a log nor a caller may hear of it."""

_DEADLINE: Final = 10.0
_MARGIN: Final = 0.05
_MORE: Final = 3
"""Who submit between two readings: one by itself, the others in bulk."""
_AT_ONCE: Final = 2000
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_NOT_SERVED: Final = (
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/shuffledp.v1.Shuffler/Anything",
)
_ELSEWHERE: Final = ("0.0.0.0:0", "[::]:0", "192.0.2.1:50051", "shuffler.example:443")
"""Addresses that are not of this machine alone."""
_UNPROTECTED: Final = ("plaintext is allowed on loopback only", "say how calls are protected")
"""What settings, and connections, are told that say nothing of protection, or the wrong thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knock:
    """One call that was tried, and what the caller was told."""

    party: Party
    method: str
    """Its path, as it is on the wire."""
    certificate: Certificate
    token: Token
    status: str
    """`OK` where it was served."""
    told: str
    """The sentence beside the status."""
    beside: tuple[tuple[str, str], ...]
    """All that came before or after the answer, by name."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was tried, and what came of it."""

    knocks: tuple[Knock, ...]
    failures: tuple[Knock, ...]
    """Calls in which each service was made to fail."""
    lines: tuple[tuple[str, str], ...]
    """Logged meanwhile: party and line."""
    peers: tuple[str, ...]
    """Who called, as the services were told."""
    beside: tuple[tuple[str, str, str], ...]
    """What servicers sent beside their answers in the whole play: method, name, content."""
    pages: tuple[Mapping[str, str], Mapping[str, str]]
    """Metrics by party, before and after some submissions to a batch that collects."""
    answers: tuple[tuple[bytes, ...], tuple[bytes, ...]]
    """What the shuffler answers to questions about the batch, before and after."""
    collecting_lines: tuple[str, ...]
    """Logged by anybody during these submissions."""
    asking_lines: tuple[str, ...]
    """Logged by the shuffler while it was asked for proofs."""
    facts: Mapping[Fact, bool]


class Visits:
    """Looks at running services from outside, while a batch collects and when all is over."""

    def __init__(self, trio: Trio, tape: Tape) -> None:
        self._trio, self._tape = trio, tape
        self._knocks, self._failures = list[Knock](), list[Knock]()
        self._lines, self._collecting, self._asking = LogLines(), list[str](), list[str]()
        self._pages, self._answers = list[Mapping[str, str]](), list[tuple[bytes, ...]]()
        self._facts: dict[Fact, bool] = {}

    async def while_collecting(
        self, people: People, signed: SignedTask, values: Sequence[int]
    ) -> None:
        """Let some users answer, and be refused; read what can be read before and after."""
        digest, lines = signed.digest(), LogLines()
        async with self._channel("shuffler", "none") as channel:
            await self._look(channel, digest)
            with lines.heard_too():
                await people.answer(signed, values[:_MORE], ())
                self._facts[Fact.EACH_OUTCOME] = await people.answer_wrongly(signed)
                await asyncio.sleep(_MARGIN)
            await self._look(channel, digest)
        self._collecting += [line for _, line in lines.lines]

    async def when_over(self, digest: TaskDigest) -> None:
        """Ask for proofs of a batch; then try every call, and make every service fail."""
        lines = LogLines()
        async with self._channel("shuffler", "none") as channel:
            with lines.heard_too():
                for prefix in (b"", bytes(PREFIX_BYTES), b"\x5a" * PREFIX_BYTES):
                    request = shuffler_pb2.GetInclusionRequest(task_digest=digest, prefix=prefix)
                    await _answer(channel, "GetInclusion", request.SerializeToString())
        self._asking += [line for who, line in lines.lines if who == "shuffler"]
        self._tape.aside = True
        try:
            with self._lines.heard_too():
                await self._knock_everywhere()
                await self._too_many()
                await self._fail()
                self._library_errors()
        finally:
            self._tape.aside, self._tape.failure = False, ""
        self._plaintext()

    def seen(self) -> Seen:
        """Give all that was seen."""
        before, after = self._pages
        answered, answered_after = self._answers
        return Seen(
            knocks=tuple(self._knocks),
            failures=tuple(self._failures),
            lines=tuple(self._lines.lines),
            peers=tuple(sorted(self._tape.peers)),
            beside=tuple(sorted(self._tape.beside)),
            pages=(before, after),
            answers=(answered, answered_after),
            collecting_lines=tuple(self._collecting),
            asking_lines=tuple(self._asking),
            facts=self._facts,
        )

    async def _look(self, channel: grpc.aio.Channel, digest: TaskDigest) -> None:
        """Ask the shuffler all that anybody may ask, and read the metrics of all."""
        questions = {
            "FetchTask": shuffler_pb2.FetchTaskRequest(task_digest=digest),  # begins a batch
            "GetBatchStatus": shuffler_pb2.GetBatchStatusRequest(task_digest=digest),
            "GetInclusion": shuffler_pb2.GetInclusionRequest(task_digest=digest),
        }
        answers = [
            await _answer(channel, name, request.SerializeToString())
            for name, request in questions.items()
        ]
        self._answers.append(tuple(answers))
        self._pages.append({party: await self._trio.metrics(party) for party in METHODS})

    async def _knock_everywhere(self) -> None:
        """Try every call of every service with every certificate and token, some at once."""
        shut_out: tuple[Certificate, ...] = ("none", "plaintext", "foreign")
        tried: list[tuple[Party, Certificate, Sequence[Token]]] = [
            *(("analyzer", shown, TOKENS) for shown in ("shuffler", "operator", "user_agent")),
            *(("analyzer", shown, ("none", "right")) for shown in shut_out),
            *(("shuffler", shown, TOKENS) for shown in ("none", "operator")),
            ("shuffler", "plaintext", ("none", "right")),
            ("user_agent", "none", ("none",)),
        ]
        await asyncio.gather(*(self._knock(*each) for each in tried))

    async def _knock(self, party: Party, shown: Certificate, tokens: Sequence[Token]) -> None:
        """Try every call of one service, one after the other, on one connection."""
        async with self._channel(party, shown) as channel:
            for token in tokens:
                for path in (*_paths(party), _HEALTH, *_NOT_SERVED):
                    self._knocks.append(await self._try(channel, party, path, shown, token))

    async def _fail(self) -> None:
        """Make every servicer fail at every call, in front of those who may make it."""
        self._tape.failure = MARKER
        shown: dict[Party, tuple[Certificate, ...]] = {
            "analyzer": ("operator", "shuffler"),
            "shuffler": ("none",),
            "user_agent": ("none",),
        }
        for party, certificates in shown.items():
            for certificate in certificates:
                async with self._channel(party, certificate) as channel:
                    self._failures += [
                        await self._try(channel, party, path, certificate, "right")
                        for path in _paths(party)
                    ]
        self._tape.failure = ""

    async def _too_many(self) -> None:
        """Submit more over one connection than one may."""
        request = shuffler_pb2.SubmitBulkRequest(
            task_digest=bytes(DIGEST_BYTES), envelopes=[b""] * _AT_ONCE
        ).SerializeToString()
        path = "/shuffledp.v1.Shuffler/SubmitBulk"
        async with self._channel("shuffler", "none") as channel:
            tried = [
                await self._try(channel, "shuffler", path, "none", "none", request)
                for _ in range(SUBMISSIONS_EACH // _AT_ONCE + 1)
            ]
        self._failures.append(tried[-1])
        self._facts[Fact.SHARE_OF_CONNECTION] = (
            tried[0].status != tried[-1].status == "RESOURCE_EXHAUSTED"
        )

    def _library_errors(self) -> None:
        """Log as libraries do, and as asyncio does of a task that nobody waits for."""
        library, error = logging.getLogger("library"), ValueError(MARKER)
        library.warning(MARKER)
        library.error("failed: %s", MARKER, exc_info=error)
        asyncio.get_running_loop().call_exception_handler({"message": MARKER, "exception": error})

    def _plaintext(self) -> None:
        """Ask for services, and for connections, that are not protected."""
        folder, identity = Path("nowhere"), "0" * 64
        for listen in (*_ELSEWHERE, "127.0.0.1:0"):
            local = listen.startswith("127.")
            unprotected = {"state_directory": folder, "listen": listen, "plaintext": not local}
            refused = _refused(AnalyzerSettings, unprotected) and _refused(
                ShufflerSettings, {**unprotected, "analyzer": "a:1", "analyzer_identity": identity}
            )
            refused = refused and _refused(
                UserAgentSettings, {**unprotected, "shuffler": "a:1", "analyzer_identity": identity}
            )
            fact = Fact.PROTECTION_SAID if local else Fact.NO_PLAIN_LISTENING
            self._facts[fact] = refused and self._facts.get(fact, True)
        opened = list[str]()
        for address in _ELSEWHERE:
            try:
                open_channel(address, "shuffler", None)
            except SettingsError as error:
                if _UNPROTECTED[0].removesuffix(" only") in str(error):
                    continue
            opened.append(address)
        self._facts[Fact.NO_PLAIN_CALLS] = not opened

    async def _try(  # noqa: PLR0917  # what a call is made of
        self,
        channel: grpc.aio.Channel,
        party: Party,
        path: str,
        shown: Certificate,
        token: Token,
        request: bytes = b"",
    ) -> Knock:
        text = self._token(party, token)
        headers = () if text is None else (("authorization", f"Bearer {text}"),)
        multicallable: Any = channel.unary_unary(path)
        call = multicallable(request, timeout=_DEADLINE, metadata=headers)
        try:
            await call
            status, told = "OK", ""
            beside = [*await call.initial_metadata(), *await call.trailing_metadata()]
        except grpc.aio.AioRpcError as error:
            status, told = error.code().name, error.details() or ""
            beside = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
        return Knock(
            party=party,
            method=path,
            certificate=shown,
            token=token,
            status=status,
            told=told,
            beside=tuple((str(name), str(content)) for name, content in beside),
        )

    def _token(self, party: Party, token: Token) -> str | None:
        if party == "user_agent":
            return None
        right = self._trio.token(party)
        other = self._trio.token("shuffler" if party == "analyzer" else "analyzer")
        return {
            "none": None,
            "empty": "",
            "a part": right[: len(right) // 2],
            "and more": f"{right}0",
            "another's": other,
            "right": right,
        }[token]

    @asynccontextmanager
    async def _channel(self, party: Party, shown: Certificate) -> AsyncIterator[grpc.aio.Channel]:
        """Connect as somebody, with the settings of gRPC and not the project's."""
        address = self._trio.address(party)
        async with AsyncExitStack() as stack:
            if party == "user_agent":
                channel = open_channel(address, party, None)
            elif shown == "plaintext":
                channel = grpc.aio.insecure_channel(address)
            else:
                own = self._identity(shown)
                credentials = grpc.ssl_channel_credentials(
                    self._trio.authority.read_bytes(),
                    own.key if own else None,
                    own.certificate if own else None,
                )
                channel = grpc.aio.secure_channel(
                    address,
                    credentials,
                    options=[
                        ("grpc.ssl_target_name_override", party),
                        ("grpc.enable_retries", 0),
                        ("grpc.use_local_subchannel_pool", 1),
                    ],
                )
            yield await stack.enter_async_context(channel)

    def _identity(self, shown: Certificate) -> TlsIdentity | None:
        if shown == "none":
            return None
        if shown == "foreign":
            folder = self._trio.directory / "stranger"
            return development_files(folder, "shuffler", SystemClock()).read()
        return development_files(self._trio.directory / "tls", shown, SystemClock()).read()


def _paths(party: Party) -> Iterator[str]:
    for method in METHODS[party]:
        yield f"/{method.containing_service.full_name}/{method.name}"


async def _answer(channel: grpc.aio.Channel, name: str, request: bytes) -> bytes:
    """Ask the shuffler; a refusal is an answer too."""
    multicallable: Any = channel.unary_unary(f"/shuffledp.v1.Shuffler/{name}")
    try:
        return bytes(await multicallable(request, timeout=_DEADLINE))
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}".encode()


def _refused(settings: type[Any], fields: Mapping[str, object]) -> bool:
    """Say whether settings are refused for what they say of protection."""
    try:
        settings(**fields)
    except SettingsError as error:
        return any(words in str(error) for words in _UNPROTECTED)
    return False
