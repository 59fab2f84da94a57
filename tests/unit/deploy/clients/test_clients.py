"""Errors of operators' clients when a service does not serve them."""

from typing import Any, cast

import grpc
import pytest

from common.errors import PeerBusyError, PeerError, PeerUnableError
from common.task_digest import TaskDigest
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient

_FORESEEN = grpc.aio.Metadata(("shuffledp-foreseen", "1"))
_NOTHING = grpc.aio.Metadata()


class _Failing:
    """A channel to a service whose every answer is an error."""

    def __init__(self, code: grpc.StatusCode, beside: grpc.aio.Metadata) -> None:
        self._error = grpc.aio.AioRpcError(code, _NOTHING, beside, details="the disk is full")

    def unary_unary(self, *_: object, **__: object) -> Any:
        """Give the call of a path."""

        async def call(*_: object, **__: object) -> None:
            raise self._error

        return call

    stream_unary = unary_stream = stream_stream = unary_unary


@pytest.mark.parametrize(
    ("code", "beside", "kind", "advised"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, _NOTHING, PeerBusyError, False),
        (grpc.StatusCode.UNAVAILABLE, _FORESEEN, PeerUnableError, False),
        (grpc.StatusCode.UNAVAILABLE, _NOTHING, PeerError, True),
    ],
)
async def test_only_a_service_that_does_not_answer_may_be_at_another_address(
    code: grpc.StatusCode, beside: grpc.aio.Metadata, kind: type[PeerError], *, advised: bool
) -> None:
    """One that has no room, or whose disk is full, is there."""
    channel = cast("grpc.aio.Channel", _Failing(code, beside))
    for call in (
        OperatorClient(channel, "127.0.0.1:1", "token").tasks(),
        ShufflerClient(channel, "127.0.0.1:1").progress(TaskDigest(bytes(32))),
    ):
        with pytest.raises(kind) as caught:
            await call
        assert advised == ("Check that it runs, the address and the authority" in str(caught.value))
