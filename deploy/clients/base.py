"""Shared by operators' clients of a service: the channel, the token, errors, and files."""

from pathlib import Path
from typing import Any, ClassVar, Self

import grpc

from common.errors import PeerBusyError, PeerError, PeerUnableError, SettingsError
from common.runtime.rpc import SHORT_DEADLINE, reply


class ServiceClient:
    """A channel to a service, with the token of its operator; empty for public calls only."""

    _PARTY: ClassVar[str]
    """Its name in errors."""
    _STUB: ClassVar[Any]
    """Its generated stub."""

    def __init__(self, channel: grpc.aio.Channel, address: str, token: str = "") -> None:
        self._channel = channel
        self._stub = self._STUB(channel)
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def _call(self, method: Any, request: Any, seconds: float = SHORT_DEADLINE) -> Any:  # noqa: ANN401  # of the stub
        """Make a call with the token."""
        call = method(request, metadata=self._metadata, timeout=seconds)
        try:
            return await reply(call, f"{self._PARTY} at {self._address}")
        except (PeerBusyError, PeerUnableError):
            raise  # it runs, and at that address
        except PeerError as error:
            raise PeerError(
                f"{error}. Check that it runs, the address and the authority"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def read_token(file: Path) -> str:
    """Read an operator's token; raise SettingsError if the file holds no printable one."""
    token = read_file(file).decode("ascii", "replace").strip()
    if not (token and token.isascii() and token.isprintable()):
        raise SettingsError(f"{file} does not hold an operator's token")
    return token


def read_file(path: Path) -> bytes:
    """Read a file whole, such as the certificate to trust; raise SettingsError if that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
