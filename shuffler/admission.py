"""Admission of submissions: by token, or by a limit per connection if no tokens are required."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from common.crypto.signing import TokenIdentity
from common.errors import ConnectionLimitError
from common.runtime.concurrency import is_one_connection
from shuffler.settings import ShufflerSettings

_MAX_TOKENS: Final = 100_000
"""Maximum number of valid tokens remembered; 100,000 take about 20 MB."""
_MAX_CONNECTIONS: Final = 100_000
"""Maximum number of connections counted; the least recently used is forgotten first."""


class TokenCheck:
    """Verifies tokens, and remembers the valid ones."""

    def __init__(self, identity: TokenIdentity) -> None:
        self._identity = identity
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    async def accepted(self, tokens: Sequence[bytes]) -> list[bool]:
        """Return whether each token is valid. New tokens are verified in a thread."""
        known = {token: token in self._valid for token in tokens}
        new = [token for token, valid in known.items() if not valid]
        verified = await asyncio.to_thread(self._verified, new) if new else {}
        accepted = [(known | verified)[token] for token in tokens]
        for token, valid in verified.items():
            if valid:
                self._valid[token] = None
        while len(self._valid) > _MAX_TOKENS:
            self._valid.popitem(last=False)
        return accepted

    def _verified(self, tokens: Sequence[bytes]) -> dict[bytes, bool]:
        return {token: self._identity.is_valid_token(token) for token in tokens}


def token_check(settings: ShufflerSettings) -> TokenCheck | None:
    """Return the check of tokens that the settings require; None if they require none."""
    if settings.token_identity is None:
        return None
    return TokenCheck(TokenIdentity.from_hex(settings.token_identity, "token_identity"))


class ConnectionLimit:
    """
    Limits submissions per connection if no tokens are required. In memory, never logged.

    This stops only careless clients, since opening many connections evades it; tokens limit people.
    A connection is identified by its address and port; gRPC does not report when one closes, so a
    later connection from the same port continues the count. Nothing is counted on a Unix socket,
    where all connections look alike.

    The server closes every connection after a few minutes, so a client that keeps retrying on one
    channel soon gets a new connection and a new count.
    """

    def __init__(self, most: int) -> None:
        """Accept at most `most` submissions per connection; 0 for no limit."""
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, peer: str, submissions: int) -> None:
        """
        Count submissions before they are opened.

        Raises:
            ConnectionLimitError: The connection would exceed its limit; nothing is counted.
        """
        if not self._most or not is_one_connection(peer):
            return
        count = self._counts.get(peer, 0) + submissions
        if count > self._most:
            raise ConnectionLimitError(
                f"a connection may make {self._most} submissions; retry later on a new connection"
            )
        self._counts[peer] = count
        self._counts.move_to_end(peer)
        if len(self._counts) > _MAX_CONNECTIONS:
            self._counts.popitem(last=False)
