"""Devices' calls over HTTP, before a servicer of the tests' own."""

import asyncio
import base64
import json
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.common import errors
from shuffledp.common.errors import ConnectionLimitError, OverloadError, ShuffleDpError, WireError
from shuffledp.common.runtime.access import CALLS, CallKind
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.http_edge import MAX_BODY_BYTES, MAX_SHORT_BYTES, HttpEdge, read_json
from shuffledp.common.runtime.peer import Peer
from shuffledp.common.runtime.settings import HttpSettings
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc, task_pb2
from shuffledp.shuffler.servicer import ShufflerServicer
from tests.support.http_attacks import MANY_LISTS
from tests.support.http_calls import JSON, PROTO, AsgiCall
from tests.support.tables import table

_SUBMIT: Final = "/shuffledp.v1.Shuffler/Submit"
_FETCH: Final = "/shuffledp.v1.Shuffler/FetchTask"
_PAGE: Final = "https://page.example:8443"
_BYTES: Final = b"\xfb\xff\xfe?"
"""Bytes whose base64 is not that of URLs."""


class Servicer(ShufflerServicer):
    """Answers with a receipt, or raises an error, and notes who called."""

    def __init__(self) -> None:
        self.callers: list[Peer] = []
        self.error: Exception | None = None
        self.pause = 0.0
        self.repeated = False

    async def Submit(self, request: Any, call: Any) -> Any:  # noqa: N802  # as in the .proto file
        """Answer a submission."""
        self.callers.append(call.source)
        await asyncio.sleep(self.pause)
        if self.error is not None:
            raise self.error
        return shuffler_pb2.SubmitResponse(receipt=request.envelope, repeated=self.repeated)

    async def FetchTask(self, request: Any, _call: object) -> Any:  # noqa: N802
        """Return a long task."""
        return shuffler_pb2.FetchTaskResponse(
            task=task_pb2.SignedTask(task=request.task_digest * 1_000_000)
        )


class Edge:
    """An HTTP edge and what is behind it."""

    def __init__(self, **changes: Any) -> None:
        self.servicer = Servicer()
        self.noted: list[BaseException] = []
        relays = [ip_network("203.0.113.0/24")]
        self.admission = Admission(on_error=self.noted.append, relays=relays)
        self.serving = True
        chosen: dict[str, Any] = {"http_origins": (_PAGE,), **changes}
        self.app = HttpEdge(
            [partial(shuffler_pb2_grpc.add_ShufflerServicer_to_server, self.servicer)],
            self.admission,
            HttpSettings(
                state_directory=Path("state"),
                plaintext=True,
                http_plain=True,
                http_listen="127.0.0.1:0",
                **chosen,
            ),
            self.is_serving,
        )

    async def is_serving(self) -> bool:
        """Answer a health check."""
        return self.serving


@pytest.fixture
def edge() -> Edge:
    """Return an edge on loopback for one page."""
    return Edge()


def _request(**fields: bytes) -> bytes:
    return shuffler_pb2.SubmitRequest(**fields).SerializeToString()


_ENVELOPE: Final = _request(envelope=_BYTES)
_IN_JSON: Final = json.dumps({"envelope": base64.b64encode(_BYTES).decode()}).encode()
_AS_JSON: Final = {"content-type": JSON}


async def test_a_message_is_answered_in_its_own_form(edge: Edge) -> None:
    """Bytes in JSON are canonical base64, and names as in JavaScript."""
    binary = await AsgiCall(_SUBMIT, [_ENVELOPE[:3], _ENVELOPE[3:]]).of(edge.app)
    text = await AsgiCall(_SUBMIT, [_IN_JSON], fields=_AS_JSON).of(edge.app)
    answer = shuffler_pb2.SubmitResponse.FromString(binary.body)

    assert (200, _BYTES, False) == (binary.status, answer.receipt, answer.repeated)
    assert {"receipt": "+//+Pw==", "repeated": False} == json.loads(text.body)
    assert ["http 1"] * 2 == [caller.connection for caller in edge.servicer.callers]
    for given_, kind in ((binary, PROTO), (text, JSON)):
        assert {
            "content-type": kind,
            "content-length": str(len(given_.body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        } == given_.fields


async def test_the_length_of_an_answer_does_not_tell_a_repeated_submission(edge: Edge) -> None:
    """On the network, both look alike, for a receipt of 64 bytes."""
    lengths = set()
    for edge.servicer.repeated in (False, True):
        for body, fields in (
            (_request(envelope=bytes(64)), {}),
            (json.dumps({"envelope": base64.b64encode(bytes(64)).decode()}).encode(), _AS_JSON),
        ):
            answer = await AsgiCall(_SUBMIT, [body], fields=fields).of(edge.app)
            lengths.add((len(fields), len(answer.body)))
    assert 2 == len(lengths)


async def test_a_long_answer_arrives_whole(edge: Edge) -> None:
    """It is sent in pieces, of which a caller must read one before the next is made."""
    request = shuffler_pb2.FetchTaskRequest(task_digest=b"a").SerializeToString()
    answer = await AsgiCall(_FETCH, [request]).of(edge.app)
    task = shuffler_pb2.FetchTaskResponse.FromString(answer.body).task.task
    assert b"a" * 1_000_000 == task
    assert str(len(answer.body)) == answer.fields["content-length"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (_PAGE, 200),
        ("https://page.example", 403),
        ("http://page.example:8443", 403),
        ("null", 403),
        (f"{_PAGE}, {_PAGE}", 403),
        ("http://localhost", 403),
    ],
)
async def test_other_pages_are_refused_before_the_body_is_read(
    edge: Edge, origin: str, status: int
) -> None:
    """A page that may call reads the answer, and no other does."""
    for verb in ("POST", "OPTIONS"):
        call = AsgiCall(_SUBMIT, [_ENVELOPE], verb, {"origin": origin})
        answer = await call.of(edge.app)
        allowed = answer.fields.get("access-control-allow-origin")
        if status == 403:
            assert (403, None, 0) == (answer.status, allowed, call.reads)
        else:
            assert (204 if verb == "OPTIONS" else 200, _PAGE) == (answer.status, allowed)
            assert "origin" == answer.fields["vary"]
            assert "shuffledp-foreseen, date" == answer.fields["access-control-expose-headers"]


@pytest.mark.parametrize(
    ("again", "status"),
    [
        (("origin", _PAGE), 403),
        (("content-type", PROTO), 415),
        (("connect-protocol-version", "1"), 400),
    ],
)
async def test_a_repeated_header_is_not_taken_for_one(
    edge: Edge, again: tuple[str, str], status: int
) -> None:
    """A proxy before the server may have read the other one."""
    fields = {"origin": _PAGE, "connect-protocol-version": "1"}
    call = AsgiCall(_SUBMIT, [_ENVELOPE], fields=fields, again=[again])
    assert (status, 0) == ((await call.of(edge.app)).status, call.reads)


async def test_a_preflight_allows_what_devices_send(edge: Edge) -> None:
    """And no cookies."""
    answer = await AsgiCall(_SUBMIT, verb="OPTIONS", fields={"origin": _PAGE}).of(edge.app)
    assert "POST" == answer.fields["access-control-allow-methods"]
    assert "content-type, connect-protocol-version" == answer.fields["access-control-allow-headers"]
    assert not [name for name in answer.fields if "credentials" in name or "cookie" in name]
    assert "content-length" not in answer.fields


@table(
    ("path", "verb"),
    [
        ("/", "GET"),
        ("/healthz", "POST"),
        ("/healthz?", "HEAD"),
        (_SUBMIT, "GET"),
        (_SUBMIT, "OPTIONS"),
        (f"{_SUBMIT}/", "POST"),
        (f"{_SUBMIT}?x=1", "POST"),
        ("/shuffledp.v1.Shuffler%2FSubmit", "POST"),
        ("/shuffledp.v1.Shuffler/submit", "POST"),
        *[
            (f"/shuffledp.v1.Shuffler/{name}", "POST")
            for name in ("SubmitBulk", "GetBatchProgress", "CloseBatch", "DropBatch")
        ],
        ("/shuffledp.v1.Witness/AddCheckpoint", "POST"),
        ("/grpc.health.v1.Health/Check", "POST"),
    ],
)
async def test_whatever_devices_do_not_need_is_not_there(edge: Edge, path: str, verb: str) -> None:
    """The answer says nothing."""
    call = AsgiCall(path, [_ENVELOPE], verb)
    answer = await call.of(edge.app)
    assert (404, b"", 0) == (answer.status, answer.body, call.reads)


@table(
    ("fields", "status", "message"),
    [
        ({"content-type": ""}, 415, ""),
        ({"content-type": "text/plain"}, 415, ""),
        ({"content-type": "application/grpc"}, 415, ""),
        ({"content-type": "application/json; charset=latin-1"}, 415, ""),
        ({"content-length": ""}, 411, ""),
        ({"content-length": str(MAX_BODY_BYTES + 1)}, 400, "the limit of this call is 2097152"),
        ({"content-encoding": "gzip"}, 501, "must not be compressed"),
        ({"connect-content-encoding": "gzip"}, 501, "must not be compressed"),
        ({"connect-protocol-version": "2"}, 400, "connect-protocol-version must be 1"),
    ],
)
async def test_a_wrong_header_is_refused_before_the_body_is_read(
    edge: Edge, fields: dict[str, str], status: int, message: str
) -> None:
    """A mistake in the form of HTTP has no body, one in a call an error of Connect."""
    call = AsgiCall(_SUBMIT, [_ENVELOPE], fields=fields)
    answer = await call.of(edge.app)
    assert (status, 0) == (answer.status, call.reads)
    assert message in answer.body.decode()
    assert bool(message) == bool(answer.body) == ("shuffledp-foreseen" in answer.fields)


async def test_only_a_submission_may_be_long(edge: Edge) -> None:
    """Any other request has a lower limit, which is checked before the body is read."""
    call = AsgiCall(_FETCH, [b""], fields={"content-length": str(MAX_SHORT_BYTES + 1)})
    answer = await call.of(edge.app)
    assert (400, 0) == (answer.status, call.reads)
    assert "the limit of this call is 16384" in answer.body.decode()


def test_no_json_takes_much_longer_to_parse_than_an_honest_submission() -> None:
    """A million lists took 30 times as long, in the event loop that serves everybody."""
    envelope = base64.b64encode(bytes(MAX_BODY_BYTES // 2)).decode()
    honest = json.dumps({"taskDigest": "A" * 43 + "=", "envelope": envelope}).encode()

    def cost(body: bytes) -> float:
        begun = time.process_time()
        with suppress(WireError):
            read_json(shuffler_pb2.SubmitRequest.FromString, body)
        return time.process_time() - begun

    costs = [(cost(MANY_LISTS), cost(honest)) for _ in range(5)]
    assert min(each for each, _ in costs) < 3 * min(each for _, each in costs)


@table(
    ("kind", "body"),
    [
        (PROTO, b"\xff"),
        (PROTO, _ENVELOPE[:-1]),
        (JSON, b""),
        (JSON, b"[]"),
        (JSON, b'"a"'),
        (JSON, b"\xff"),
        (JSON, b'{"unknown": 1}'),
        (JSON, b'{"envelope": "a", "envelope": "b"}'),
        (JSON, b'{"envelope": "a"}'),
        (JSON, b'{"envelope": 1}'),
        (JSON, b'{"envelope": {}}'),
        (JSON, b'{"envelope": "\\ud800"}'),
        (JSON, b'{"a":' * 100_000),
        (JSON, b"[" * 100_000),
        (JSON, b"1" * 100_000),
    ],
)
async def test_what_is_no_message_is_refused_without_an_echo(kind: str, body: bytes) -> None:
    """Unknown fields too."""
    edge = Edge()
    answer = await AsgiCall(_SUBMIT, [body], fields={"content-type": kind}).of(edge.app)
    status, code, message = answer.error
    assert (400, "invalid_argument") == (status, code)
    assert message.startswith("the request is not a message of this call")
    assert message.removesuffix(" in JSON") == "the request is not a message of this call"
    assert "1" == answer.fields["shuffledp-foreseen"]
    assert [WireError] == list(map(type, edge.noted))


@settings(deadline=None, max_examples=25)
@given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode), as_json=st.booleans())
def test_any_bytes_give_an_answer_or_an_error(body: bytes, *, as_json: bool) -> None:
    """Never an internal one."""
    edge = Edge()
    call = AsgiCall(_SUBMIT, [body], fields={"content-type": JSON if as_json else PROTO})
    assert asyncio.run(call.of(edge.app)).status in {200, 400}


def _family() -> list[type[ShuffleDpError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [kind for kind in found if issubclass(kind, ShuffleDpError)]


@table("kind", _family())
async def test_every_error_of_the_family_has_a_status(kind: type[ShuffleDpError]) -> None:
    """Its message and Connect's code arrive; an overload is not marked, for it is temporary."""
    edge = Edge()
    raised = kind("NOT_FOUND", "why") if kind is errors.PeerRefusalError else kind("why")
    edge.servicer.error = raised
    answer = await AsgiCall(_SUBMIT, [_ENVELOPE]).of(edge.app)
    status, code, message = answer.error
    assert (raised.status.lower(), "why") == (code, message)
    assert 400 <= status <= 504
    assert (issubclass(kind, OverloadError)) != ("shuffledp-foreseen" in answer.fields)
    assert [raised] == edge.noted
    closes = kind is ConnectionLimitError
    assert closes == (answer.fields.get("connection") == "close")


async def test_the_limit_of_a_forwarded_address_closes_no_connection_of_the_proxy() -> None:
    """Another one would not help."""
    edge = Edge(http_proxies=("198.51.100.0/24",))
    edge.servicer.error = ConnectionLimitError("why")
    for address, closes in (("192.0.2.9", False), ("203.0.113.5", True)):
        call = AsgiCall(_SUBMIT, fields={"x-forwarded-for": address}, client="198.51.100.1")
        assert closes == ("connection" in (await call.of(edge.app)).fields)


async def test_another_error_is_answered_without_details(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does the log have them."""
    edge.servicer.error = RuntimeError("198.51.100.7 sent 42")
    answer = await AsgiCall(_SUBMIT, [_ENVELOPE]).of(edge.app)
    assert (500, "internal", "internal error") == answer.error
    assert "shuffledp-foreseen" not in answer.fields
    [record] = caplog.records
    assert "198.51.100.7" not in f"{record.getMessage()} {vars(record)}"


@pytest.mark.parametrize("slow", ["body", "answer"])
async def test_a_slow_call_ends_in_time(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """By the limits of its kind. Its place is free again."""
    kind = replace(CallKind.SHORT.value, read_seconds=0.02, seconds=0.05)
    monkeypatch.setattr(CallKind.SHORT, "_value_", kind)
    edge.servicer.pause = 60.0 * (slow == "answer")
    parts = [_ENVELOPE] if slow == "answer" else [b""]
    call = AsgiCall(_SUBMIT, parts)
    if slow == "body":
        call.parts, call.fields = [b"", b""], {"content-length": "9"}
        call.reads = -1
    status, code, message = (await call.of(edge.app)).error
    assert (504, "deadline_exceeded") == (status, code)
    expected = {"body": "did not arrive completely", "answer": "within 0.05 seconds"}
    assert expected[slow] in message
    assert 0 == len(edge.admission._limits[CallKind.SHORT]._holding)


async def test_both_edges_share_their_limits(edge: Edge) -> None:
    """Calls over gRPC fill the places, and the body of a call without one is not read."""
    call = CALLS[_SUBMIT]
    held = [
        edge.admission.admit(call, Peer(f"ipv4:192.0.2.{number % 32}:1", f"{number % 32}"))
        for number in range(call.kind.value.calls)
    ]
    for one in held:
        one.arrived()
    refused = AsgiCall(_SUBMIT, [_ENVELOPE])
    answer = await refused.of(edge.app)
    assert (429, "resource_exhausted") == answer.error[:2]
    assert ("shuffledp-foreseen" in answer.fields, refused.reads) == (False, 0)
    held[0].close()
    assert 200 == (await AsgiCall(_SUBMIT, [_ENVELOPE]).of(edge.app)).status


_PROXY: Final = "198.51.100.1"


@table(
    ("client", "fields", "counted"),
    [
        ("192.0.2.1", {"x-forwarded-for": "192.0.2.9"}, ""),
        (_PROXY, {}, "unknown"),
        (_PROXY, {"x-forwarded-for": "192.0.2.9"}, "ipv4:192.0.2.9"),
        (_PROXY, {"x-forwarded-for": "192.0.2.8, 192.0.2.9"}, "ipv4:192.0.2.9"),
        (_PROXY, {"x-forwarded-for": f"192.0.2.9, {_PROXY}"}, "ipv4:192.0.2.9"),
        (_PROXY, {"x-forwarded-for": _PROXY}, f"ipv4:{_PROXY}"),
        (_PROXY, {"x-forwarded-for": "192.0.2.9:4711"}, "ipv4:192.0.2.9"),
        (_PROXY, {"x-forwarded-for": "192.0.2.9, unknown"}, "unknown"),
        (_PROXY, {"x-forwarded-for": ""}, "unknown"),
        (_PROXY, {"x-forwarded-for": "2001:db8:1:2:3::4"}, "ipv6:20010db800010002"),
        (_PROXY, {"x-forwarded-for": "::ffff:192.0.2.9"}, "ipv4:192.0.2.9"),
        (_PROXY, {"x-forwarded-for": "[2001:db8:1:2::]:80"}, "ipv6:20010db800010002"),
        (_PROXY, {"forwarded": "for=192.0.2.9"}, "unknown"),
        (_PROXY, {"forwarded": "for=192.0.2.8", "x-forwarded-for": "192.0.2.9"}, "ipv4:192.0.2.9"),
        (_PROXY, {"x-forwarded-for": "203.0.113.5"}, ""),
    ],
)
async def test_a_forwarded_address_is_believed_from_a_proxy_alone(
    client: str, fields: dict[str, str], counted: str
) -> None:
    """It counts as one connection for a while. Of a relay each connection counts as an address."""
    edge = Edge(http_proxies=("198.51.100.0/24",))
    answer = await AsgiCall(_SUBMIT, [_ENVELOPE], fields=fields, client=client).of(edge.app)
    assert 200 == answer.status
    [peer] = edge.servicer.callers
    if counted.startswith("ip"):
        assert (counted, True) == (peer.address, peer.connection.startswith(f"{counted} "))
    else:
        own = AsgiCall("").peer
        assert peer == (Peer(own.connection) if counted else own)


@pytest.mark.parametrize("more", [{}, {"forwarded": "for=192.0.2.8"}])
async def test_no_header_of_a_client_behind_a_proxy_keeps_others_out(more: dict[str, str]) -> None:
    """Its calls have the share of one address, over many connections of the proxy."""
    edge = Edge(http_proxies=("198.51.100.0/24",))
    edge.servicer.pause = 0.2

    async def status(number: int, address: str, **fields: str) -> int:
        fields |= {"x-forwarded-for": address}
        peer = Peer(f"http {number}", f"http {number}")
        call = AsgiCall(_SUBMIT, [_ENVELOPE], fields=fields, client=_PROXY, peer=peer)
        return (await call.of(edge.app)).status

    places = CallKind.SHORT.value.calls
    flood = [asyncio.create_task(status(each, "192.0.2.9", **more)) for each in range(places)]
    await asyncio.sleep(0.1)
    assert 200 == await status(places, "192.0.2.7")
    statuses = await asyncio.gather(*flood)
    assert CallKind.SHORT.value.peer_calls == statuses.count(200)


async def test_balancers_learn_whether_it_serves(edge: Edge) -> None:
    """The answer has no body."""
    for edge.serving, status in ((True, 200), (False, 503)):
        answer = await AsgiCall("/healthz", verb="GET").of(edge.app)
        assert (status, b"", "0") == (answer.status, answer.body, answer.fields["content-length"])
