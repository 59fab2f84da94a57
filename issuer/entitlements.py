"""Credentials, which show that a person may get tokens: the interface, and secrets on a list."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar
from unicodedata import normalize

from shuffledp.common.errors import CredentialError, SettingsError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.validation import read_file

MAX_NAME_CHARACTERS: Final = 200
_MAX_LIST_BYTES: Final = 1 << 28
_HASH_DIGITS: Final = 64

T = TypeVar("T")


class Entitlements(Protocol):
    """
    Maps credentials to the persons who may get one token of each key.

    To accept attested devices, verify the attestation here, and return an id that the device keeps
    when it is reset: a person gets as many tokens as they have ids. Choose the class in server.py.
    """

    async def person(self, credential: bytes) -> str:
        """Return the id of a credential's person; raise CredentialError if it is not valid."""


class WatchedFile(Generic[T]):
    """A parsed file, which is read again when it changes."""

    def __init__(self, path: Path, parse: Callable[[bytes], T], max_bytes: int) -> None:
        """Read the file, or raise SettingsError; `parse` raises it for damaged content."""
        self._path, self._parse, self._max_bytes = path, parse, max_bytes
        self._version = self._find_version()
        self._content = self._read()
        self._reading = asyncio.Lock()

    async def current(self) -> T:
        """
        Return the file's content; while the changed file is unusable, the last usable content.

        Cost: a few µs unless the file has changed, which is then read in a thread.
        """
        if self._find_version() != self._version:
            async with self._reading:
                version = self._find_version()
                if version != self._version:
                    self._version = version
                    try:
                        self._content = await asyncio.to_thread(self._read)
                    except SettingsError as error:
                        fields = logs.error_fields(error)
                        logs.event("credentials not read again", fields, level="ERROR")
        return self._content

    def _find_version(self) -> tuple[int, ...] | None:
        """Return a value that changes with the file or its mode; None if it is missing."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_ctime_ns, found.st_ino, found.st_size)

    def _read(self) -> T:
        return self._parse(read_file(self._path, self._max_bytes))


class PeopleList:
    """The people on a list, each with a secret of which the list has the hash."""

    def __init__(self, path: Path) -> None:
        """Read the list, or raise SettingsError."""
        self._file = WatchedFile(path, parse_people, _MAX_LIST_BYTES)

    async def person(self, credential: bytes) -> str:
        """Return the name of a secret's person; raise CredentialError if the list has none."""
        found = (await self._file.current()).get(sha256(credential).digest())
        if found is None:
            raise CredentialError("the credential is not the secret of anyone on the issuer's list")
        return found


def parse_people(raw: bytes) -> dict[bytes, str]:
    """
    Parse lines `NAME HASH` into names by the SHA-256 of the person's secret.

    Raises:
        SettingsError: A line breaks the form, or repeats a name or a hash. The message has the
            line's number, never a name.

    Cost: 1 µs and 300 bytes of memory per person.
    """
    try:
        lines = raw.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SettingsError("the list of people is not UTF-8 text") from error
    people: dict[bytes, str] = {}
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        name, _, digits = line.rpartition(" ")
        name = normalize("NFC", name.strip())
        try:
            hashed = bytes.fromhex(digits)
        except ValueError:
            hashed = b""
        if not line.strip():
            continue
        if not 0 < len(name) <= MAX_NAME_CHARACTERS or 2 * len(hashed) != _HASH_DIGITS:
            raise SettingsError(
                f"line {number} of the list of people is not a name of at most "
                f"{MAX_NAME_CHARACTERS} characters, a space and {_HASH_DIGITS} hexadecimal digits"
            )
        if hashed in people or name in names:
            raise SettingsError(f"line {number} of the list of people repeats a name or a hash")
        people[hashed] = name
        names.add(name)
    return people
