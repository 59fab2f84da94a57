"""What the services were sent, and answered: raw messages, as their servicers were given them."""

import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from common.errors import ShuffleDpError
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, user_agent_pb2

Party = Literal["analyzer", "shuffler", "user_agent"]

METHODS: Final[dict[Party, Sequence[MethodDescriptor]]] = {
    "analyzer": analyzer_pb2.DESCRIPTOR.services_by_name["Analyzer"].methods,
    "shuffler": shuffler_pb2.DESCRIPTOR.services_by_name["Shuffler"].methods,
    "user_agent": user_agent_pb2.DESCRIPTOR.services_by_name["UserAgent"].methods,
}


class LostAcknowledgementError(ShuffleDpError):
    """The answer did not get through; what was asked for was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One message at the door of a service."""

    call: int
    """Calls are numbered as they arrive."""
    party: Party
    """Whose door."""
    method: str
    inward: bool
    """A request, or part of one; otherwise the answer."""
    peer: str
    """Who called, as gRPC names the other end."""
    headers: tuple[str, ...]
    """Names of the headers that came with the call."""
    moment: float
    """Seconds of this machine's monotonic clock."""
    raw: bytes
    """The message on the wire, without its frame."""


_MESSAGES: Final = {
    "analyzer": analyzer_pb2,
    "shuffler": shuffler_pb2,
    "user_agent": user_agent_pb2,
}


def _nothing(_: bytes) -> None:
    """Take note of nothing."""


class Tape:
    """
    Records what the servicers of this process are given, in order.

    The taps stand between the generated code and the production servicer: a subclass notes each
    message and passes it on.
    """

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.on_manifest: Callable[[bytes], None] = _nothing
        """Told of the task whose delivery begins, before the analyzer sees its manifest."""
        self.on_staged: Callable[[bytes], None] = _nothing
        """Told of the task whose delivery was staged, before the shuffler hears of it."""
        self.lose_acknowledgement = False
        """Of the next submission that is stored."""
        self.beside: set[tuple[str, str, str]] = set()
        """What servicers sent beside their answers: method, name and content."""
        self.aside = False
        """Calls that come meanwhile are tried by the audit itself: they are not kept."""
        self.peers: set[str] = set()
        """Who made calls that were not kept."""
        self.failure = ""
        """What every servicer fails with, if anything."""
        self._calls = itertools.count()

    def tapped(self, servicer: type[Any], party: Party) -> type[Any]:
        """Give a servicer that does as the given one, and is recorded."""
        members: dict[str, Any] = {}
        for method in METHODS[party]:
            name, original = method.name, getattr(servicer, method.name)
            if method.client_streaming:
                members[name] = self._streamed(original, party, name)
            else:
                members[name] = self._unary(original, party, name)
        return type(servicer.__name__, (servicer,), members)

    def _unary(self, original: Any, party: Party, name: str) -> Any:  # noqa: ANN401  # a method
        async def call(servicer: object, request: Message, context: Any) -> Message:  # noqa: ANN401  # gRPC's
            context = self._before(name, context)
            if self.aside:
                passed: Message = await original(servicer, request, context)
                return passed
            number = next(self._calls)
            self._note(number, party, name, context, request, inward=True)
            answer: Message = await original(servicer, request, context)
            self._note(number, party, name, context, answer, inward=False)
            if name == "Submit" and self.lose_acknowledgement:
                self.lose_acknowledgement = False
                raise LostAcknowledgementError("the acknowledgement is lost")
            return answer

        return call

    def _streamed(self, original: Any, party: Party, name: str) -> Any:  # noqa: ANN401  # a method
        async def call(
            servicer: object,
            requests: AsyncIterator[analyzer_pb2.DeliverBatchRequest],
            context: Any,  # noqa: ANN401  # gRPC's
        ) -> Message:
            context = self._before(name, context)
            if self.aside:
                passed: Message = await original(servicer, requests, context)
                return passed
            number = next(self._calls)
            digests: list[bytes] = []

            async def passing() -> AsyncIterator[Message]:
                async for request in requests:
                    self._note(number, party, name, context, request, inward=True)
                    if not digests:
                        digests.append(request.manifest.task_digest)
                        self.on_manifest(digests[0])
                    yield request

            answer: Message = await original(servicer, passing(), context)
            for digest in digests:
                self.on_staged(digest)
            self._note(number, party, name, context, answer, inward=False)
            return answer

        return call

    def _before(self, name: str, context: Any) -> Any:  # noqa: ANN401  # gRPC's
        """Give a context that notes what is sent beside the answer; or fail, if asked to."""
        if self.aside:
            self.peers.add(str(context.peer()))
        if self.failure:
            raise ValueError(self.failure)
        return _Context(context, name, self.beside)

    def _note(
        self,
        call: int,
        party: Party,
        method: str,
        context: Any,  # noqa: ANN401  # gRPC's
        message: Message,
        *,
        inward: bool,
    ) -> None:
        self.heard.append(
            Heard(
                call=call,
                party=party,
                method=method,
                inward=inward,
                peer=str(context.peer()),
                headers=tuple(sorted(key for key, _ in context.invocation_metadata() or ())),
                moment=time.monotonic(),
                raw=message.SerializeToString(),
            )
        )


class _Context:
    """gRPC's context of a call, which notes what is sent beside the answer."""

    def __init__(self, context: Any, name: str, beside: set[tuple[str, str, str]]) -> None:  # noqa: ANN401  # gRPC's
        self._context, self._name, self._beside = context, name, beside

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever that has
        return getattr(self._context, name)

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Send what stands before the answer."""
        self._keep(metadata)
        await self._context.send_initial_metadata(metadata)

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Set what stands behind it."""
        self._keep(metadata)
        self._context.set_trailing_metadata(metadata)

    def set_details(self, details: str) -> None:
        """Set the sentence that stands beside the status."""
        self._keep([("grpc-message", details)])
        self._context.set_details(details)

    def _keep(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._beside |= {(self._name, str(name), str(content)) for name, content in metadata}


def tasks_of_calls(heard: tuple[Heard, ...]) -> dict[int, bytes]:
    """Tell of each call of shuffler and analyzer which task it is about."""
    found: dict[int, bytes] = {}
    for one in heard:
        if one.call in found or not one.inward or one.party == "user_agent":
            continue
        request = _request(one.party, one.method).FromString(one.raw)
        part = request.manifest if one.method == "DeliverBatch" else request
        found[one.call] = bytes(getattr(part, "task_digest", b""))
    return found


def _request(party: Party, method: str) -> Any:  # noqa: ANN401  # a message's class
    [found] = [one for one in METHODS[party] if one.name == method]
    return getattr(_MESSAGES[party], found.input_type.name)
