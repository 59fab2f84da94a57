"""Client of the issuer of tokens; people's secrets, tokens and invitations to the page."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from gmpy2 import mpz

from shuffledp.common.crypto.privacy_tokens import TOKEN_BYTES, PendingToken
from shuffledp.common.crypto.randomness import seeded_generator
from shuffledp.common.errors import ProofError, SettingsError, UsageError
from shuffledp.common.runtime import rpc, validation
from shuffledp.common.runtime.parts.executor import gather
from shuffledp.common.task.task import Task
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.issuance import MAX_BULK_TOKENS, TOKENS, signatures_from_wire
from shuffledp.deploy.clients.base import ServiceClient
from shuffledp.protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc
from shuffledp.user_agent.credentials import SECRET_BYTES

_IN_FLIGHT: Final = 3
"""Calls at once: of two that the issuer works on, and one whose tokens are made."""
BROWSER_PROTOCOLS: Final = frozenset(
    (
        *("ldp-warner", "ldp-grr", "ldp-sue", "ldp-oue", "ldp-blh", "ldp-olh", "sh", "murs"),
        *("hp-sdp", "ddps", "aue", "puredump", "hierarchy", "mixdump", "od-hp", "fe1", "sbin"),
        *("sageo", "hybrid", "digits", "geo-digits", "vector-digits", "geo-vector-digits"),
        *("tables", "geo-tables"),
    )
)
"""What the device in TypeScript answers: user_agent/web/src/task/protocols.ts."""


class IssuerClient(ServiceClient):
    """Client of an issuer, with its operator token, which tokens do not need."""

    _PARTY = "issuer"
    _STUB = issuer_pb2_grpc.IssuerStub

    async def create_key(self, end: int, population: str = "") -> TokenSpec:
        """Create the key of a task for a population; it ends in second `end` since 1970."""
        request = issuer_pb2.CreateTokenKeyRequest(end=end, population=population)
        response = await self._call(self._stub.CreateTokenKey, request)
        return TOKENS.from_wire(response.tokens)

    async def issue(self, asked: Sequence[tuple[bytes, bytes, bytes]]) -> Sequence[bytes]:
        """Fetch blind signatures, unverified, by key id, blinded message and credential."""
        request = issuer_pb2.IssueTokensRequest()
        for key_id, blinded, credential in asked:
            request.requests.add(key_id=key_id, blinded=blinded, credential=credential)
        answer = await self._call(self._stub.IssueTokens, request, rpc.LONG_DEADLINE)
        return signatures_from_wire(answer)


@dataclass(frozen=True, slots=True)
class PeopleFiles:
    """The two files of a list of people."""

    listed: bytes = field(repr=False)
    """For the issuer's setting `people`: lines NAME HASH."""
    credentials: bytes = field(repr=False)
    """For the people: lines NAME SECRET."""


def draw_people(names: Sequence[str], credentials: bytes = b"") -> PeopleFiles:
    """Draw secrets from the operating system for people who are not in earlier `credentials`."""
    known = dict(line.rsplit(" ", 1) for line in credentials.decode().splitlines())
    drawn = known | {name: secrets.token_hex(SECRET_BYTES) for name in names if name not in known}
    hashed = {name: sha256(bytes.fromhex(secret)).hexdigest() for name, secret in drawn.items()}
    listed, shown = (
        "".join(f"{name} {text}\n" for name, text in each.items()).encode()
        for each in (hashed, drawn)
    )
    return PeopleFiles(listed, shown)


async def fetch_tokens(
    issuer: IssuerClient,
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
    arguments gets the same tokens.

    Raises:
        ProofError: The issuer's signature is wrong.
        PeerError, PeerRefusalError: The issuer does not answer, or refuses a request.

    Cost: about 0.6 ms per token on one core, most of it the issuer's.
    """
    key, challenge = tokens.token_key(), tokens.challenge(digest)
    room = asyncio.Semaphore(_IN_FLIGHT)

    def draw(credential: bytes) -> PendingToken:
        stage = f"token {digest.hex()} {sha256(credential).hexdigest()}"
        drawn = PendingToken.draw(key, challenge, seeded_generator(seed, stage, 0).bytes)
        return replace(drawn, r=mpz(drawn.r))  # Python's own integers are four times slower

    async def fetch(some: Sequence[bytes]) -> list[bytes]:
        async with room:
            pending = list(map(draw, some))
            asked = [(key.key_id, p.blinded(), c) for p, c in zip(pending, some, strict=True)]
            signed = await issuer.issue(asked)
            if len(signed) != len(some):
                raise ProofError(f"the issuer sent {len(signed)} signatures for {len(some)} people")
            progress(len(some))
            return [each.finalize(one) for each, one in zip(pending, signed, strict=True)]

    starts = range(0, len(credentials), MAX_BULK_TOKENS)
    found = await gather(fetch(credentials[at : at + MAX_BULK_TOKENS]) for at in starts)
    return [token for some in found for token in some]


def read_tokens(path: Path) -> list[bytes]:
    """Read a file of tokens, one a line in hexadecimal digits, or raise SettingsError."""
    try:
        tokens = list(map(bytes.fromhex, validation.read_file(path).decode("ascii").split()))
    except ValueError as error:
        raise SettingsError(f"{path} must hold tokens in hexadecimal digits") from error
    for number, token in enumerate(tokens, start=1):
        if len(token) != TOKEN_BYTES:
            raise SettingsError(
                f"line {number} of {path} has {len(token)} bytes; a token has {TOKEN_BYTES}"
            )
    return list(dict.fromkeys(tokens))


def invitation(page: str, digest: TaskDigest, credential: bytes) -> str:
    """
    Return the address with which a person takes part, by a secret or an ID token.

    The fragment, which browsers send to nobody, has both. Raises UsageError unless the page is at
    an http or https address.
    """
    parts = urlsplit(page)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        raise UsageError("the page's address must be https://HOST/ or http://HOST:PORT/")
    secret = len(credential) == SECRET_BYTES
    fields = {"task": digest.hex(), "credential": credential.hex() if secret else credential}
    return f"{page.rstrip('/')}/#{urlencode(fields)}"


def lines(invited: Mapping[str, str]) -> str:
    """Return lines NAME ADDRESS; the address alone for an empty name."""
    return "".join(f"{name} {address}".lstrip() + "\n" for name, address in invited.items())


def is_for_browsers(task: Task) -> bool:
    """Return whether the device in TypeScript can answer a task."""
    return task.protocol in BROWSER_PROTOCOLS
