"""Limits on who may submit: submissions by connection, or tokens."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from common.crypto.signing import TokenIdentity
from common.errors import ShareError
from common.runtime.admission_interceptor import is_one_connection

_MAX_CONNECTIONS: Final = 100_000
"""Connections whose submissions are counted; the least recent is forgotten first."""


class ConnectionCount:
    """
    Limits the submissions of one connection where no tokens are required. In memory, never logged.

    It stops a careless client. A client that opens many connections evades it: only tokens limit
    people. On a Unix socket, where connections look alike, nothing is counted.
    """

    def __init__(self, most: int) -> None:
        """Accept at most `most` submissions of a connection; 0 for no limit."""
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, peer: str, submissions: int) -> None:
        """
        Count submissions before they are opened.

        Raises:
            ShareError: The connection has used its share. Another connection may continue.
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
        if len(self._counts) > _MAX_CONNECTIONS:
            self._counts.popitem(last=False)


_MAX_REMEMBERED: Final = 100_000
"""Valid tokens that are not verified again; 100,000 take some 20 MB."""


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
        found = [(known | verified)[token] for token in tokens]  # others may be forgotten meanwhile
        for token, valid in verified.items():
            if valid:
                self._valid[token] = None
        while len(self._valid) > _MAX_REMEMBERED:
            self._valid.popitem(last=False)
        return found

    def _verified(self, tokens: Sequence[bytes]) -> dict[bytes, bool]:
        return {token: self._identity.accepts(token) for token in tokens}

    def __repr__(self) -> str:
        return f"TokenCheck({self._identity!r})"
