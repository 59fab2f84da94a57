"""What a device says of itself when it calls: nothing."""

from typing import Any, cast

import grpc

from protos.shuffledp.v1 import shuffler_pb2
from tests.support.tasks import published
from user_agent.shuffler_client import DeviceClient

_CASE = published()
_DIGEST = _CASE.signed.digest()


class _Channel:
    """Keeps what calls are made with, and answers them."""

    def __init__(self) -> None:
        self.made: list[tuple[str, bytes, dict[str, Any]]] = []

    def unary_unary(self, path: str, *_: object, **__: object) -> Any:
        """Give the call of a path."""

        async def call(request: Any, **beside: Any) -> Any:
            self.made.append((path, request.SerializeToString(), beside))
            return shuffler_pb2.SubmitResponse(receipt=bytes(64))

        return call

    stream_unary = unary_stream = stream_stream = unary_unary


async def test_a_submission_carries_no_headers() -> None:
    """Nothing but the envelope and its token, in the time that every call has."""
    channel = _Channel()
    await DeviceClient(cast("grpc.aio.Channel", channel)).submit(_DIGEST, b"envelope", b"token")
    [(path, sent, beside)] = channel.made
    expected = shuffler_pb2.SubmitRequest(task_digest=_DIGEST, envelope=b"envelope", token=b"token")

    assert "/shuffledp.v1.Shuffler/Submit" == path
    assert expected.SerializeToString() == sent
    assert {"timeout"} == set(beside)
