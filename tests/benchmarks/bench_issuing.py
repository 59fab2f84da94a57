"""Tokens that an issuer signs a second, beside the opening of sealed reports."""

import asyncio
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey, report_context
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.task_digest import TaskDigest
from shuffledp.issuer.core import signing_threads
from shuffledp.issuer.token_keys import HeldKey
from tests.benchmarks.conftest import Best, Line, best_of
from tests.support.issuers import IssuerCore

_TOKENS: Final = 400
_CALL: Final = 200
_REPORTS: Final = 4000


def _opening_rate() -> float:
    """Return the reports that one core opens a second."""
    key, context = HpkePrivateKey.generate(DEFAULT_SUITE), report_context(TaskDigest(bytes(32)))
    sealed = [key.public_key().sealer(context)(bytes(8))] * _REPORTS
    opener = key.opener(context)
    return _REPORTS / best_of(3, lambda: [opener(one) for one in sealed])


def _messages(count: int) -> list[bytes]:
    rng = np.random.default_rng(1)
    return [bytes(1) + rng.bytes(255) for _ in range(count)]


def test_signing(best: Best, line: Line) -> None:
    """The private operation alone, in one thread and in one per core."""
    key, messages = TokenSigningKey(TokenSigningKey.generate()), _messages(_TOKENS)
    opening = _opening_rate()

    def rate_in(threads: int) -> float:
        with signing_threads(threads) as pool:
            return _TOKENS / best_of(5, lambda: list(pool.map(key.blind_sign, messages)))

    plain = _TOKENS / best(3, lambda: [key.blind_sign(one) for one in messages])
    line(
        "signing blinded tokens",
        tokens_per_second=plain,
        opened_per_token=opening / plain,
        in_one_thread=rate_in(1) / plain,
        in_a_thread_per_core=rate_in(0) / plain,
    )


def test_issuing(best: Best, line: Line, tmp_path: Path) -> None:
    """The core with its database: durable, each for another person, 256 at once."""
    credentials = [secrets.token_bytes(32) for _ in range(6 * _TOKENS)]
    core, messages = IssuerCore(tmp_path), _messages(_TOKENS)
    hashes = (f"{n} {sha256(one).hexdigest()}\n" for n, one in enumerate(credentials))
    (tmp_path / "people.txt").write_text("".join(hashes), encoding="utf-8")
    made = HeldKey.generate(2**33, core.clock.now())
    public = made.signing_key.token_key()
    bare = made.signing_key
    plain = _TOKENS / best_of(3, lambda: [bare.blind_sign(one) for one in messages])
    with signing_threads(0) as core.signers:
        core.start()
        core.keys.hold(made)
        left = iter(credentials)

        async def issue_all() -> None:
            at_once = asyncio.Semaphore(256)

            async def issue(message: bytes) -> None:
                async with at_once:
                    await core.issuance.issue(public.key_id, message, next(left))

            await asyncio.gather(*map(issue, messages))

        async def issue_bulk() -> None:
            for at in range(0, _TOKENS, _CALL):
                part = messages[at : at + _CALL]
                await core.issuance.issue_bulk([(public.key_id, one, next(left)) for one in part])

        rate = _TOKENS / best(3, lambda: asyncio.run(issue_all()))
        in_bulk = _TOKENS / best_of(3, lambda: asyncio.run(issue_bulk()))
    core.stop()
    opening = _opening_rate()
    line(
        "issuing tokens",
        tokens_per_second=rate,
        of_signing_in_one_thread=rate / plain,
        in_bulk_of_signing_in_one_thread=in_bulk / plain,
        opened_per_token=opening / rate,
    )
