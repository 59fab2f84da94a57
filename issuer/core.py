"""Issue tokens: at most one per person and token key, and no more in a period than the cap."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Final

import gmpy2

from shuffledp.common import errors
from shuffledp.common.crypto.privacy_tokens import TokenKey
from shuffledp.common.crypto.token_signing import blinded_number
from shuffledp.common.runtime.clock import Clock, repeat
from shuffledp.common.runtime.shared_calls import GroupCommit
from shuffledp.issuer.entitlements import Entitlements
from shuffledp.issuer.issuance_store import IssuanceStore, Issued, Settled, Wanted
from shuffledp.issuer.metrics import TokenOutcome
from shuffledp.issuer.token_cap import TokenCap
from shuffledp.issuer.token_keys import HeldKey, TokenKeys

_TICK: Final = 600.0
"""Seconds between searches for ended keys."""
_BULK_CALLS: Final = 2
"""Bulk calls that are answered at once; with more, people's own calls would wait for longer."""
_PART: Final = 16
"""Messages that a thread signs at once."""
_CAUSES: Final[Mapping[type[errors.ShuffleDpError], TokenOutcome]] = {
    errors.CredentialError: "credential",
    errors.ConflictError: "second message",
    errors.UnknownKeyError: "key",
    errors.WireError: "malformed",
    errors.BudgetError: "cap",
}


@dataclass(kw_only=True)
class Issuance:
    """The issuer's core."""

    keys: TokenKeys
    store: IssuanceStore
    entitlements: Entitlements
    cap: TokenCap
    signers: Executor
    """Runs the private operations, of 0.3 ms each."""
    clock: Clock
    record: Callable[[TokenOutcome], None]
    """Counts answers."""

    def __post_init__(self) -> None:
        self._changing = asyncio.Lock()
        """Held while keys are created or destroyed."""
        self._bulk = asyncio.Semaphore(_BULK_CALLS)
        self._commits = GroupCommit[Sequence[Wanted], Settled](
            lambda calls: self.store.settle(calls, self._sign)
        )

    async def create_key(self, end: int, population: str = "") -> TokenKey:
        """
        Create the token key of a task for a population durably. For the operator.

        Raises WireError if its end has passed.
        """
        async with self._changing:
            key = await asyncio.to_thread(HeldKey.generate, end, self.clock.now(), population)
            public = key.signing_key.token_key()
            await self.store.begin(public.key_id)
            await asyncio.to_thread(self.keys.hold, key)
            await self.store.mark([public.key_id.hex()], held=True)
        return public

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        """
        Return the blind signature of a person's message.

        A message is signed once: its signature is stored before it is returned, and returned again
        for the same message, as to a device that has crashed. Of concurrent requests for two
        messages, one gets a signature.

        Raises:
            UnknownKeyError: The key is unknown or has ended.
            CredentialError: The credential is not valid.
            ConflictError: The person already has a signature of another message.
            BudgetError: The person has had all tokens of this population and period.
            WireError: The message is not below the key's modulus.
            StorageError: The disk failed; safe to retry.
        """
        [signature] = await self._issue([(key_id, blinded, credential)])
        return signature

    async def issue_bulk(self, asked: Sequence[tuple[bytes, bytes, bytes]]) -> list[bytes]:
        """
        Return several people's blind signatures, each by key id, blinded message and credential.

        Raises the errors of `issue`. A conflict or the cap leaves the rest signed, and returned to
        a call without the refused request; other errors stop the call before it signs.
        """
        async with self._bulk:
            return await self._issue(asked)

    async def _issue(self, asked: Sequence[tuple[bytes, bytes, bytes]]) -> list[bytes]:
        issued: list[Issued] = []
        try:
            wanted = [await self._wanted(*each) for each in asked]
            for each, settled in zip(wanted, await self._commits.append(wanted), strict=True):
                if isinstance(settled, str):
                    raise errors.BudgetError(settled)
                if settled.request != each.request:
                    raise errors.ConflictError(
                        "this person already has a token of this key, which another device asked "
                        "for"
                    )
                issued.append(settled)
        except tuple(_CAUSES) as error:
            self.record(_CAUSES[type(error)])
            raise
        for settled in issued:
            self.record("issued" if settled.is_new else "repeated")
        return [settled.signature for settled in issued]

    async def _wanted(self, key_id: bytes, blinded: bytes, credential: bytes) -> Wanted:
        key = self.keys.find(key_id, self.clock.now())
        person = await self.entitlements.person(credential)
        blinded_number(blinded, key.signing_key.token_key().modulus)
        return Wanted(
            key_id=key_id,
            person=key.tag(person),
            request=sha256(blinded).digest(),
            sign=partial(key.signing_key.blind_sign, blinded),
            charge=self.cap.charge(key.population, person, self.clock.now()),
        )

    def _sign(self, wanted: Sequence[Wanted]) -> list[bytes]:
        """Sign in the database's thread, which waits anyway, or in all threads if it pays."""
        if len(wanted) <= _PART:
            return _sign_each(wanted)
        parts = [wanted[start : start + _PART] for start in range(0, len(wanted), _PART)]
        return list(chain.from_iterable(self.signers.map(_sign_each, parts)))

    async def check_complete(self) -> None:
        """
        Check that files and database have the same keys. Run at start, before any is destroyed.

        Raises SettingsError if the database lacks a key, of which people could get a second token,
        or if the file of a key or of the present period is missing.
        """
        known, held = await self.store.keys(), self.keys.held()
        for key_id in held - known.keys():
            raise errors.SettingsError(
                f"the database does not know token-{key_id}.key: it is lost or an old copy. "
                "Restore it or, to give up the key's task, remove that file"
            )
        for key_id in {key_id for key_id, must in known.items() if must} - held:
            raise errors.SettingsError(
                f"token-{key_id}.key is missing in the state directory, and the database knows it: "
                "put it back or, to give up the key's task, erase the rows of issuer.sqlite with "
                f"key_id = x'{key_id}'"
            )
        await self.store.mark(held, held=True)
        self.cap.check_complete(await self.store.periods(), self.clock.now())

    async def destroy_ended(self) -> None:
        """Destroy the keys of tasks and periods that have ended, and erase the persons' rows."""
        async with self._changing:
            ended = self.keys.ended(self.clock.now())
            await self.store.mark(ended, held=False)
            await asyncio.to_thread(self.keys.destroy, ended)
            await self.store.forget_others(self.keys.held())
            self.cap.destroy_ended(self.clock.now())
            await self.store.forget_counts(self.cap.held())

    async def run(self, tick: float = _TICK) -> None:
        """Destroy ended keys every `tick` seconds for as long as the service runs."""
        await repeat(self.destroy_ended, tick, "token keys not destroyed yet", wait=True)


def _sign_each(wanted: Sequence[Wanted]) -> list[bytes]:
    return [each.sign() for each in wanted]


def signing_threads(count: int) -> ThreadPoolExecutor:
    """Start `count` threads that sign in parallel, or one per core for 0, on first use."""
    return ThreadPoolExecutor(
        count or os.cpu_count() or 1, thread_name_prefix="signing", initializer=_release_lock
    )


def _release_lock() -> None:
    gmpy2.get_context().allow_release_gil = True  # GMP's operations, in this thread only
