"""People on an issuer's list: their secrets, and one token of a task for each."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from common.crypto.privacy_tokens import TOKEN_BYTES, PendingToken
from common.crypto.randomness import seeded_generator
from common.errors import SettingsError
from common.runtime.validation import read_file
from common.task.token_spec import TokenSpec
from common.task_digest import TaskDigest
from user_agent.issuer_client import Issuer, request_token

_SECRET_BYTES: Final = 32
_IN_FLIGHT: Final = 32


@dataclass(frozen=True, slots=True)
class PeopleFiles:
    """The two files of a list of people."""

    listed: bytes = field(repr=False)
    """For the issuer's setting `people`: lines NAME HASH."""
    credentials: bytes = field(repr=False)
    """For the people: lines NAME SECRET."""


def draw_people(names: Sequence[str]) -> PeopleFiles:
    """Draw a secret for each person from the operating system."""
    drawn = [(name, secrets.token_bytes(_SECRET_BYTES)) for name in names]
    return PeopleFiles(
        "".join(f"{name} {sha256(secret).hexdigest()}\n" for name, secret in drawn).encode(),
        "".join(f"{name} {secret.hex()}\n" for name, secret in drawn).encode(),
    )


async def fetch_tokens(
    issuer: Issuer,
    tokens: TokenSpec,
    digest: TaskDigest,
    credentials: Sequence[bytes],
    *,
    seed: bytes,
    progress: Callable[[int], None] = lambda _: None,
) -> list[bytes]:
    """
    Get a token of a task for each credential, as devices do, in their order.

    The tokens' secrets are derived from a secret `seed`, so that a second call with the same
    arguments gets the same tokens. Raises the errors of `request_token`.

    Cost: about 2 ms per token on one core, most of it the issuer's.
    """
    key, challenge = tokens.token_key(), tokens.challenge(digest)
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def fetch(credential: bytes) -> bytes:
        async with room:
            stage = f"token {digest.hex()} {sha256(credential).hexdigest()}"
            rng = seeded_generator(seed, stage, 0)
            pending = PendingToken.draw(key, challenge, rng.bytes)
            token = await request_token(issuer, pending, credential)
        progress(1)
        return token

    requests = [asyncio.ensure_future(fetch(each)) for each in credentials]
    try:
        return await asyncio.gather(*requests)
    finally:
        for request in requests:
            request.cancel()


def read_tokens(path: Path) -> list[bytes]:
    """Read a file of tokens, one a line in hexadecimal digits, or raise SettingsError."""
    try:
        tokens = list(map(bytes.fromhex, read_file(path).decode("ascii").split()))
    except ValueError as error:
        raise SettingsError(f"{path} must hold tokens in hexadecimal digits") from error
    for number, token in enumerate(tokens, start=1):
        if len(token) != TOKEN_BYTES:
            raise SettingsError(
                f"line {number} of {path} has {len(token)} bytes; a token has {TOKEN_BYTES}"
            )
    return list(dict.fromkeys(tokens))
