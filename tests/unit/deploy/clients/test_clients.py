"""What operators are told when a service does not serve them."""

from collections.abc import Awaitable, Callable

import grpc
import pytest

from common.errors import PeerBusyError, PeerError, PeerUnableError
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient

_FORESEEN = grpc.aio.Metadata(("shuffledp-foreseen", "1"))
_NOTHING = grpc.aio.Metadata()


async def _fails(code: grpc.StatusCode, beside: grpc.aio.Metadata) -> None:
    raise grpc.aio.AioRpcError(code, _NOTHING, beside, details="the disk is full")


def _replies() -> list[Callable[[Awaitable[None]], Awaitable[None]]]:
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    return [
        OperatorClient(channel, "127.0.0.1:1", "token")._reply,
        ShufflerClient(channel, "127.0.0.1:1")._reply,
    ]


@pytest.mark.parametrize(
    ("code", "beside", "kind"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, _NOTHING, PeerBusyError),
        (grpc.StatusCode.UNAVAILABLE, _FORESEEN, PeerUnableError),
    ],
)
async def test_a_service_that_answers_is_not_said_to_be_somewhere_else(
    code: grpc.StatusCode, beside: grpc.aio.Metadata, kind: type[PeerError]
) -> None:
    """It has no room, or its disk is full: the address is right."""
    for reply in _replies():
        with pytest.raises(kind) as caught:
            await reply(_fails(code, beside))
        assert "Check that" not in str(caught.value)


async def test_a_service_that_does_not_answer_may_be_somewhere_else() -> None:
    """Then the address is worth a look."""
    for reply in _replies():
        with pytest.raises(PeerError, match="Check that it runs, the address"):
            await reply(_fails(grpc.StatusCode.UNAVAILABLE, _NOTHING))
