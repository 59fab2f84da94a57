"""Checks users' tokens, each valid one once a process."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from common.user_token import TokenIdentity

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
