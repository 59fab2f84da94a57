"""A service at the other end of a channel, for its operator: what calls to any of them share."""

from collections.abc import Awaitable
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import grpc

from common.errors import PeerBusyError, PeerError, PeerUnableError, SettingsError
from common.runtime.rpc import reply

T = TypeVar("T")


class ServiceClient:
    """A channel, the token that goes with calls, and what is said when nobody answers."""

    _PARTY: ClassVar[str]
    """What errors call it."""
    _TO_CHECK: ClassVar[str]
    """What may be wrong with the command if it does not answer."""

    def __init__(self, channel: grpc.aio.Channel, address: str, token: str = "") -> None:
        self._channel = channel
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),)

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
        SettingsError: The file cannot be read, or holds what no call can carry.
    """
    try:
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} does not hold an operator's token") from error
    if not (token and token.isprintable()):
        raise SettingsError(f"{file} does not hold an operator's token")
    return token


def read_authority(authority: Path) -> bytes:
    """
    Read whom to trust. gRPC parses it, and trusts nobody if it is none.

    Raises:
        SettingsError: The file cannot be read.
    """
    try:
        return authority.read_bytes()
    except OSError as error:
        raise SettingsError(f"{authority} cannot be read: {error.strerror}") from error
