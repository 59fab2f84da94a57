"""What operators' clients of a service share: the channel, the token, and errors."""

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import grpc

from common.errors import PeerBusyError, PeerError, PeerUnableError, SettingsError
from common.runtime.rpc import SHORT_DEADLINE, reply

T = TypeVar("T")


class ServiceClient:
    """A channel to a service, with the token of its operator."""

    _PARTY: ClassVar[str]
    """Its name in errors."""
    _TO_CHECK: ClassVar[str]
    """Advice for a service that does not answer."""

    def __init__(self, channel: grpc.aio.Channel, address: str, token: str = "") -> None:
        self._channel = channel
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def _call(self, method: Any, request: Any, seconds: float = SHORT_DEADLINE) -> Any:  # noqa: ANN401  # of the stub
        """Make a call with the token."""
        return await self._reply(method(request, metadata=self._metadata, timeout=seconds))

    async def _reply(self, call: Awaitable[T]) -> T:
        try:
            return await reply(call, f"{self._PARTY} at {self._address}")
        except (PeerBusyError, PeerUnableError):
            raise  # it runs, and at that address
        except PeerError as error:
            raise PeerError(f"{error}. Check that it runs, {self._TO_CHECK}") from error

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def read_token(file: Path) -> str:
    """
    Read an operator's token.

    Raises:
        SettingsError: The file cannot be read, or holds no printable token.
    """
    try:
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not (token and token.isprintable()):
        raise SettingsError(f"{file} does not hold an operator's token")
    return token


def read_authority(authority: Path) -> bytes:
    """
    Read the certificate to trust. gRPC parses it, and trusts nobody if it is invalid.

    Raises:
        SettingsError: The file cannot be read.
    """
    try:
        return authority.read_bytes()
    except OSError as error:
        raise SettingsError(f"{authority} cannot be read: {error.strerror}") from error
