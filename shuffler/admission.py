"""Admission of submissions: by one-time tokens or, for tasks without, by a limit per connection."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shuffledp.common.crypto.privacy_tokens import TokenKey
from shuffledp.common.errors import ConnectionLimitError, WireError
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task_digest import TaskDigest

_MAX_CONNECTIONS: Final = 100_000
"""Maximum number of connections counted; the least recently used is forgotten first."""
_MAX_CHECKS: Final = 256
"""Maximum number of tasks whose token check is kept."""


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """Verifies the tokens of one task; the store accepts each of them once."""

    tokens: TokenSpec
    digest: TaskDigest

    def are_valid(self, tokens: Sequence[bytes]) -> list[bool]:
        """Return whether each token is valid. Cost: about 20 µs per token."""
        key, challenge = _key_and_challenge(self.tokens, self.digest)
        return [key.is_valid_token(token, challenge) for token in tokens]

    def explain(self, token: bytes) -> str:
        """Return why a token is not valid, for its device."""
        if not token:
            return "this task requires a one-time token with every submission"
        key, challenge = _key_and_challenge(self.tokens, self.digest)
        if not key.is_for(token, challenge):
            return "the token is of another task or token key"
        return "the token is not signed by the task's issuer"


@lru_cache(maxsize=_MAX_CHECKS)
def _key_and_challenge(tokens: TokenSpec, digest: TaskDigest) -> tuple[TokenKey, bytes]:
    """Return what a task's tokens are verified with, which each worker keeps too."""
    return tokens.token_key(), tokens.challenge(digest)


class ConnectionLimit:
    """
    Limits submissions per connection to tasks without tokens. In memory, never logged.

    This stops only careless clients, since opening many connections evades it; tokens limit people.
    Over gRPC, a connection is identified by its address and port; gRPC does not report when one
    closes, so a later connection from the same port continues the count. Nothing is counted where
    connections look alike, as on a Unix socket.

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
            WireError: The call alone exceeds it.
        """
        if not self._most or not peer:
            return
        if submissions > self._most:
            raise WireError(
                f"the call has {submissions} submissions; a connection may make {self._most}"
            )
        count = self._counts.get(peer, 0) + submissions
        if count > self._most:
            raise ConnectionLimitError(
                f"a connection, or an address behind a proxy, may make {self._most} submissions; "
                "retry on a new connection or in five minutes"
            )
        self._counts[peer] = count
        self._counts.move_to_end(peer)
        if len(self._counts) > _MAX_CONNECTIONS:
            self._counts.popitem(last=False)
