"""Counts submissions by connection, for shufflers that ask for no tokens."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from common.crypto.tokens import TokenIdentity
from common.errors import ShareError
from common.runtime.admission_interceptor import is_one_connection

_CONNECTIONS: Final = 100_000
"""Connections whose submissions are counted; the one heard of longest ago is forgotten."""


class ConnectionCount:
    """
    Bounds what one connection submits, where there are no tokens. In memory only, never logged.

    It bounds what one careless client does. Whoever opens many connections is not one client:
    only tokens bound people. On a Unix socket, where connections look alike, nothing is counted.
    """

    def __init__(self, most: int) -> None:
        """Take at most so many submissions of a connection; 0 is no limit."""
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, peer: str, submissions: int) -> None:
        """
        Count submissions before they are looked at.

        Raises:
            ShareError: The connection had its share. Another connection may go on.
        """
        if not self._most or not is_one_connection(peer):
            return
        count = self._counts.get(peer, 0) + submissions
        if count > self._most:
            raise ShareError(
                f"a connection may make {self._most} submissions; connect again, later"
            )
        self._counts[peer] = count
        self._counts.move_to_end(peer)
        if len(self._counts) > _CONNECTIONS:
            self._counts.popitem(last=False)


_REMEMBERED: Final = 100_000
"""Valid tokens that are not verified again; 100,000 take some 20 MB."""


class TokenCheck:
    """Says which tokens the issuer made. Only valid ones are remembered."""

    def __init__(self, identity: TokenIdentity) -> None:
        self._identity = identity
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    async def accepted(self, tokens: Sequence[bytes]) -> list[bool]:
        """Say of each whether it is valid. What has to be verified is, in a thread."""
        known = {token: token in self._valid for token in tokens}
        new = [token for token, valid in known.items() if not valid]
        verified = await asyncio.to_thread(self._verified, new) if new else {}
        found = [(known | verified)[token] for token in tokens]  # others may be forgotten meanwhile
        for token, valid in verified.items():
            if valid:
                self._valid[token] = None
        while len(self._valid) > _REMEMBERED:
            self._valid.popitem(last=False)
        return found

    def _verified(self, tokens: Sequence[bytes]) -> dict[bytes, bool]:
        return {token: self._identity.accepts(token) for token in tokens}

    def __repr__(self) -> str:
        return f"TokenCheck({self._identity!r})"
