"""Base class of the service clients, and reading of operator token files."""

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar, Self

import grpc

from shuffledp.common.errors import PeerBusyError, PeerError, PeerUnableError, SettingsError
from shuffledp.common.runtime import clock, rpc, tls, validation
from shuffledp.common.wire.fields import MAX_MESSAGE_BYTES


class ServiceClient:
    """A channel to a service with its operator token, which is empty for public calls."""

    _PARTY: ClassVar[str]
    _STUB: ClassVar[Any]
    _CERTIFIED: ClassVar[bool] = False
    """Whether the service asks for the operator's certificate."""
    _RECEIVE_LIMIT: ClassVar[int] = MAX_MESSAGE_BYTES

    def __init__(self, channel: grpc.aio.Channel, address: str, token: str = "") -> None:
        self._channel = channel
        self._stub = self._STUB(channel)
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    @classmethod
    def connect(
        cls,
        address: str,
        authority: Path | None,
        token_file: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> Self:
        """
        Open a channel to host:port; without an authority, in plaintext, on loopback only.

        `certificate` and `key` are by default operator.pem and operator.key beside `authority`.
        """
        own = trusted = None
        if authority is not None:
            trusted = validation.read_file(authority)
            if cls._CERTIFIED:
                own = tls.client_identity(authority, certificate, key, clock.SystemClock().now())
        limit = cls._RECEIVE_LIMIT
        channel = rpc.open_channel(address, cls._PARTY, trusted, own=own, receive_limit=limit)
        return cls(channel, address, read_token(token_file))

    async def _call(self, method: Any, request: Any, seconds: float = rpc.SHORT_DEADLINE) -> Any:  # noqa: ANN401  # stubs are untyped
        """Call a method of the stub with the token, and return its response."""
        call = method(request, metadata=self._metadata, timeout=seconds)
        advice = "Check that it is running, and check its address and authority"
        return await reply_or_advice(call, f"the {self._PARTY} at {self._address}", advice)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


async def reply_or_advice(call: Awaitable[Any], whom: str, advice: str) -> Any:  # noqa: ANN401  # stubs are untyped
    """Return the response of a call; if `whom` does not answer, add advice to the error."""
    try:
        return await rpc.reply(call, whom)
    except (PeerBusyError, PeerUnableError):
        raise  # the service runs at that address
    except PeerError as error:
        raise type(error)(f"{error}. {advice}") from error


def read_token(file: Path | None) -> str:
    """
    Return an operator token, empty without a file.

    Raises SettingsError if the file has no printable ASCII token.
    """
    if file is None:
        return ""
    token = validation.read_file(file).decode("ascii", "replace").strip()
    if not (token and token.isascii() and token.isprintable()):
        raise SettingsError(f"{file} does not contain an operator token")
    return token
