"""Issue tokens: at most one per person and token key."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from hashlib import sha256
from typing import Final

from common.crypto.privacy_tokens import TokenKey
from common.errors import (
    ConflictError,
    CredentialError,
    SettingsError,
    ShuffleDpError,
    UnknownKeyError,
    WireError,
)
from common.runtime.clock import Clock
from common.runtime.metrics import TokenOutcome
from common.runtime.repeat import repeat
from issuer.entitlements import Entitlements
from issuer.issuance_store import IssuanceStore, Issued
from issuer.token_keys import TokenKeys

_TICK: Final = 600.0
"""Seconds between searches for ended keys."""
_CAUSES: Final[Mapping[type[ShuffleDpError], TokenOutcome]] = {
    CredentialError: "credential",
    ConflictError: "second message",
    UnknownKeyError: "key",
    WireError: "malformed",
}


class Issuance:
    """The issuer's core."""

    def __init__(
        self,
        *,
        keys: TokenKeys,
        store: IssuanceStore,
        entitlements: Entitlements,
        signers: Executor,
        clock: Clock,
        record: Callable[[TokenOutcome], None],
    ) -> None:
        """`signers` runs the private operations, of 1 ms each; `record` counts answers."""
        self._keys = keys
        self._store = store
        self._entitlements = entitlements
        self._signers = signers
        self._clock = clock
        self._record = record
        self._changing = asyncio.Lock()
        """Held while keys are created or destroyed."""

    async def create_key(self, end: int) -> TokenKey:
        """Create a token key durably; raise WireError if its end has passed. For the operator."""
        async with self._changing:
            key = await asyncio.to_thread(self._keys.generate, end, self._clock.now())
            public = key.signing_key.token_key()
            await self._store.begin(public.key_id)
            await asyncio.to_thread(self._keys.hold, key)
            await self._store.mark([public.key_id.hex()], held=True)
        return public

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        """
        Return the blind signature of a person's message.

        A message is signed once: its signature is stored before it is returned, and returned again
        for the same message, as to a device that has crashed. Concurrent requests for two messages
        may both be signed, but only the stored signature leaves the issuer.

        Raises:
            UnknownKeyError: The key is unknown or has ended.
            CredentialError: The credential is not valid.
            ConflictError: The person already has a signature of another message.
            WireError: The message is not below the key's modulus.
            StorageError: The disk failed; safe to retry.
        """
        try:
            signature, outcome = await self._issue(key_id, blinded, credential)
        except tuple(_CAUSES) as error:
            self._record(_CAUSES[type(error)])
            raise
        self._record(outcome)
        return signature

    async def _issue(
        self, key_id: bytes, blinded: bytes, credential: bytes
    ) -> tuple[bytes, TokenOutcome]:
        key = self._keys.find(key_id, self._clock.now())
        person = key.tag(await self._entitlements.person(credential))
        request = sha256(blinded).digest()
        found = await self._store.find(key_id, person)
        outcome: TokenOutcome = "issued" if found is None else "repeated"
        if found is None:
            signature = await asyncio.get_running_loop().run_in_executor(
                self._signers, lambda: key.signing_key.blind_sign(blinded)
            )
            issued = Issued(request=request, signature=signature)
            found = await self._store.settle(key_id, person, issued)
        if found.request != request:
            raise ConflictError(
                "this person already has a token of this key, which another device asked for"
            )
        return found.signature, outcome

    async def check_complete(self) -> None:
        """
        Check that files and database have the same keys. Run at start, before any is destroyed.

        Raises SettingsError if the database lacks a key, of which people could get a second token,
        or if a key's file is missing.
        """
        known, held = await self._store.keys(), self._keys.held()
        for key_id in held - known.keys():
            raise SettingsError(
                f"the database does not know token-{key_id}.key: it is lost or an old copy. "
                "Restore it or, to give up the key's task, remove that file"
            )
        for key_id in {key_id for key_id, must in known.items() if must} - held:
            raise SettingsError(
                f"token-{key_id}.key is missing in the state directory, and the database knows it: "
                "put it back or, to give up the key's task, erase the rows of issuer.sqlite with "
                f"key_id = x'{key_id}'"
            )
        await self._store.mark(held, held=True)

    async def destroy_ended(self) -> None:
        """Destroy the keys that have ended, and erase whom they were used for."""
        async with self._changing:
            ended = self._keys.ended(self._clock.now())
            await self._store.mark(ended, held=False)
            await asyncio.to_thread(self._keys.destroy, ended)
            await self._store.forget_others(self._keys.held())

    async def run(self, tick: float = _TICK) -> None:
        """Destroy ended keys every `tick` seconds for as long as the service runs."""
        await repeat(self.destroy_ended, tick, "token keys not destroyed yet", wait=True)
