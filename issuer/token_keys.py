"""
The issuer's token keys: one RSA key per task, each in its own sealed file.

Files, as every other private key has: the state directory seals them to their names, writes them
atomically and overwrites them at the end, which no row of a database is.
"""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Final, Self

from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.dates import utc
from shuffledp.common.errors import SettingsError, UnknownKeyError, WireError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.state_directory import StateDirectory

_FILES: Final = "token-*.key"
_END_BYTES: Final = 8
_KEPT_AFTER_END: Final = 30 * 86_400
"""Seconds for which an ended key, which signs nothing, is kept."""
_PERSON_KEY_BYTES: Final = 32
_NAME_PLACE: Final = _END_BYTES + _PERSON_KEY_BYTES
_LABEL: Final = b"shuffledp v1 person of a token\x00"


@dataclass(frozen=True, kw_only=True)
class HeldKey:
    """A token key that the issuer holds; its secrets are hidden in repr."""

    end: int
    """Seconds since 1970 UTC; from then on the key signs nothing."""
    person_key: bytes = field(repr=False)
    """Keys the hashes of persons. It is the key's own, so that nothing in the table links a
    person's tokens of two tasks."""
    private: bytes = field(repr=False)
    """The private key in PKCS #8."""
    population: str = field(default="", repr=False)
    """Printable ASCII; the task's. The issuer's cap counts the tokens of one population."""

    @classmethod
    def generate(cls, end: int, now: float, population: str = "") -> Self:
        """Draw a key; raise WireError if `end` has passed. Cost: 0.1 s, varying widely."""
        if end <= now:
            raise WireError(f"end is {utc(end)}; it must be after the present, {utc(now)}")
        person_key = secrets.token_bytes(_PERSON_KEY_BYTES)
        private = TokenSigningKey.generate()
        return cls(end=end, person_key=person_key, private=private, population=population)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Parse the unsealed content of a key file."""
        if len(raw) <= _NAME_PLACE or len(raw) <= _NAME_PLACE + raw[0]:
            raise WireError("a file of a token key is too short")
        name, private = raw[_NAME_PLACE : _NAME_PLACE + raw[0]], raw[_NAME_PLACE + raw[0] :]
        if not name.isascii():
            raise WireError("the population in a file of a token key is not ASCII")
        return cls(
            end=int.from_bytes(raw[1:_END_BYTES]),
            person_key=raw[_END_BYTES:_NAME_PLACE],
            private=private,
            population=name.decode(),
        )

    def to_bytes(self) -> bytes:
        """
        Return the content of the key file; never log or send it.

        The end's first byte, which no time needs, has the length of the population's name.
        """
        name = self.population.encode()
        start = bytes([len(name)]) + self.end.to_bytes(_END_BYTES)[1:]
        return start + self.person_key + name + self.private

    def tag(self, person: str) -> bytes:
        """Return the hash under which this key's issuance to a person is stored."""
        name = person.encode(errors="surrogatepass")  # an ID token may hold half a character
        return hmac.digest(self.person_key, _LABEL + name, sha256)

    @cached_property
    def signing_key(self) -> TokenSigningKey:
        """The private key. Cost: 0.1 s at its first use, too much for every key at the start."""
        return TokenSigningKey(self.private)


class TokenKeys:
    """Creates, finds and destroys token keys. `now` is always in seconds since 1970 UTC."""

    def __init__(self, state: StateDirectory) -> None:
        """Read all keys, or raise SettingsError if one is damaged or sealed under another key."""
        self._state = state
        names = {name[len("token-") : -len(".key")]: name for name in state.names(_FILES)}
        self._keys = {key_id: self._read(name) for key_id, name in names.items()}

    def hold(self, key: HeldKey) -> None:
        """Hold a new key, durably."""
        key_id = key.signing_key.token_key().key_id.hex()
        self._state.secret(f"token-{key_id}.key", key.to_bytes)
        self._keys[key_id] = key
        logs.event("token key created", {"key_id": key_id})

    def find(self, key_id: bytes, now: float) -> HeldKey:
        """Return a key; raise UnknownKeyError if there is none, or it has ended."""
        key = self._keys.get(key_id.hex())
        if key is None:
            raise UnknownKeyError("this issuer has no token key of this id, or has destroyed it")
        if key.end <= now:
            raise UnknownKeyError(f"this token key ended at {utc(key.end)}")
        return key

    def ended(self, now: float) -> list[str]:
        """Return the ids of the keys that ended 30 days ago."""
        ended = now - _KEPT_AFTER_END
        return [key_id for key_id, key in self._keys.items() if key.end <= ended]

    def destroy(self, ended: Iterable[str]) -> None:
        """Destroy keys."""
        for key_id in ended:
            self._state.destroy(f"token-{key_id}.key")
            del self._keys[key_id]
            logs.event("token key destroyed", {"key_id": key_id})

    def held(self) -> frozenset[str]:
        """Return the ids of all keys, in hexadecimal digits."""
        return frozenset(self._keys)

    def _read(self, name: str) -> HeldKey:
        def missing() -> bytes:
            raise SettingsError(f"{name} has vanished from the state directory")

        try:
            return HeldKey.from_bytes(self._state.secret(name, missing))
        except WireError as error:
            raise SettingsError(f"{name} in the state directory: {error}") from error
