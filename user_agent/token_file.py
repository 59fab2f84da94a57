"""
A person's token for collections that ask for one, from a file beside the device's settings.

A line holds a token in hexadecimal digits; for an agent of several people, the person's name stands
behind it. The file is read whenever a token is needed, so that a new one takes effect at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.errors import SettingsError
from common.user_token import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Where tokens are kept; None if the person has none. Read by whoever owns the device only."""

    path: Path | None
    name: str = "token_file"
    """What errors call it."""

    def token(self, person: str) -> bytes:
        """
        Find a person's token; empty if there is none.

        Raises:
            SettingsError: The file cannot be read, or a line holds no token. What it holds instead
                is not repeated.
        """
        found = b""
        for number, line in self._lines():
            digits, _, name = line.partition(" ")
            if name.strip() == person:
                found = self._read(digits, number)
        return found

    def tokens(self) -> list[bytes]:
        """
        Read all tokens, none twice, in their order: for an operator who plays devices.

        Raises:
            SettingsError: As `token`; a line with a person's name holds no token for others either.
        """
        return list(dict.fromkeys(self._read(line, number) for number, line in self._lines()))

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Give the lines that hold something, each with its number."""
        if self.path is None:
            return
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise SettingsError(
                f"{self.name}, {self.path}, cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.name} is not text") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()

    def _read(self, digits: str, number: int) -> bytes:
        try:
            token = bytes.fromhex(digits)
        except ValueError:
            token = b""
        if len(token) != TOKEN_BYTES:
            raise SettingsError(
                f"line {number} of {self.name} holds no token: {2 * TOKEN_BYTES} hexadecimal digits"
            )
        return token
