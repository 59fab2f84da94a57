"""Counts submissions by connection, for shufflers that ask for no tokens."""

from collections import OrderedDict
from typing import Final

from common.errors import ShareError
from common.runtime.admission import is_one_connection

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
