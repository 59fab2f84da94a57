"""Devices over HTTP, at the real shuffler and issuer, over TLS and behind a proxy."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.common.wire.tasks import signed_task_from_wire
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from tests.support.clients import envelopes, result_of, submit
from tests.support.haproxy import proxy
from tests.support.http_calls import JSON, Answer, HttpConnection
from tests.support.services import Services

_SHUFFLER: Final = "/shuffledp.v1.Shuffler"
_PATIENCE: Final = 20.0


def _in_json(message: Any) -> bytes:
    """Write a message of bytes alone, as a program without a library would."""
    found = {field.json_name: value for field, value in message.ListFields()}
    return json.dumps(
        {name: base64.b64encode(raw).decode() for name, raw in found.items()}
    ).encode()


def _submission(digest: bytes, envelope: bytes) -> Any:
    return shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)


async def test_a_submission_counts_once_whichever_way_it_comes(services: Services) -> None:
    """As protocol buffer or JSON over HTTP, and over gRPC; the receipt is the same."""
    signed = await services.publish(n_min=3, target_size=3)
    sent, digest = envelopes(signed, 3), signed.digest()
    ways, receipts = [0, 1, 2], []
    connection = await services.http()
    for number, envelope in enumerate(sent):
        request = _submission(digest, envelope)
        for step, way in enumerate(ways[number:] + ways[:number]):
            if way == 0:
                [answer] = await submit(services, signed, envelope)
            elif way == 1:
                raw = await connection.post(f"{_SHUFFLER}/Submit", request.SerializeToString())
                answer = shuffler_pb2.SubmitResponse.FromString(raw.body)
            else:
                raw = await connection.post(f"{_SHUFFLER}/Submit", _in_json(request), JSON)
                parsed = json.loads(raw.body)
                receipt = base64.b64decode(parsed["receipt"])
                answer = shuffler_pb2.SubmitResponse(repeated=parsed["repeated"], receipt=receipt)
            assert (step > 0) == answer.repeated
            receipts.append(answer.receipt)
    connection.close()

    assert [1, 1, 1] == [len(set(receipts[at : at + 3])) for at in (0, 3, 6)]
    assert 3 == (await result_of(services, signed)).n_users


async def test_a_device_needs_nothing_but_http(services: Services) -> None:
    """Task and place in the log, submission, and inclusion; a refusal has Connect's form."""
    signed = await services.publish(n_min=1, target_size=1)
    digest = signed.digest()
    connection = await services.http()
    wanted = shuffler_pb2.FetchTaskRequest(task_digest=digest, log_size=0).SerializeToString()
    fetched = await connection.post(f"{_SHUFFLER}/FetchTask", wanted)
    task = shuffler_pb2.FetchTaskResponse.FromString(fetched.body)
    assert signed == signed_task_from_wire(task.task)
    assert task.HasField("log_proof")
    prefix = shuffler_pb2.GetInclusionRequest(task_digest=digest).SerializeToString()
    early = await connection.post(f"{_SHUFFLER}/GetInclusion", prefix)
    assert (400, "failed_precondition") == early.error[:2]
    assert "1" == early.fields["shuffledp-foreseen"]
    [envelope] = envelopes(signed, 1)
    body = _submission(digest, envelope).SerializeToString()
    assert 200 == (await connection.post(f"{_SHUFFLER}/Submit", body)).status
    await result_of(services, signed)
    async with asyncio.timeout(_PATIENCE):
        while (late := await connection.post(f"{_SHUFFLER}/GetInclusion", prefix)).status != 200:
            await asyncio.sleep(0.05)
    connection.close()
    assert late.fields["date"].endswith(" GMT")
    assert shuffler_pb2.GetInclusionResponse.FromString(late.body).HasField("commitment")


async def test_strangers_learn_nothing_and_no_address_is_logged(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign name or page, an unknown path, and what is no request."""
    address = services.published("shuffler", "http_address")
    authority = services.authority.read_bytes()
    source = "127.0.0.44"
    asked = [
        ("/", {}, 404),
        (f"{_SHUFFLER}/SubmitBulk", {}, 404),
        (f"{_SHUFFLER}/Submit", {"origin": "https://evil.example"}, 403),
        (f"{_SHUFFLER}/Submit", {"host": "rebound.example"}, 403),
        (f"{_SHUFFLER}/Submit", {"content_type": "text/plain"}, 415),
    ]
    for path, fields, status in asked:
        connection = await HttpConnection.open(address, authority, source=source)
        answer = await connection.post(path, b"{", **fields)
        assert (status, b"") == (answer.status, answer.body)
        connection.close()
    connection = await HttpConnection.open(address, authority, source=source)
    connection.writer.write(b"\xff" * 100)
    assert 400 == (await connection.answer()).status
    connection.close()
    assert source not in "".join(
        f"{record.getMessage()} {vars(record)}" for record in caplog.records
    )


@pytest.mark.own_services
async def test_behind_a_proxy_the_forwarded_address_has_the_limits(
    services: Services, tmp_path: Path
) -> None:
    """What a client claims counts for nothing. A relay's connections count, not its address."""
    stopped = await services.http()
    await services.shuffler.stop()
    assert b"" == await stopped.reader.read()
    stopped.close()
    await services.start_shuffler(
        submissions_per_connection=2,
        http_plain=True,
        http_proxies=["127.0.0.1/32"],
        relays=["127.0.0.9/32"],
    )
    signed = await services.publish(n_min=100, target_size=100)
    bodies = [
        _submission(signed.digest(), each).SerializeToString() for each in envelopes(signed, 13)
    ]
    authority = services.authority.read_bytes()

    async def post(connection: HttpConnection, **fields: str) -> Answer:
        return await connection.post(f"{_SHUFFLER}/Submit", bodies.pop(), **fields)

    server = services.published("shuffler", "http_address")
    async with proxy(tmp_path, services.directory / "tls", server) as before:
        for claimed in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
            one = await HttpConnection.open(before.address, authority, source="127.0.0.2")
            fields = {"x_forwarded_for": claimed, "forwarded": f"for={claimed}"}
            answer = await post(one, **fields)
            assert answer.status == (503 if claimed == "192.0.2.3" else 200)
            one.close()
        assert (503, "unavailable") == answer.error[:2]
        statuses = []
        for _ in range(4):
            relayed = await HttpConnection.open(before.address, authority, source="127.0.0.9")
            statuses.append((await post(relayed)).status)
            relayed.close()
        assert statuses.count(200) >= 3  # the limit of a proxy's connection is 2, and closes it
        other = await HttpConnection.open(before.address, authority, source="127.0.0.3")
        assert 200 == (await post(other)).status
        other.close()
    direct = await HttpConnection.open(server)
    answers = [await post(direct) for _ in range(3)]
    direct.close()
    assert [(200, None), (200, None), (503, "close")] == [
        (answer.status, answer.fields.get("connection")) for answer in answers
    ]
