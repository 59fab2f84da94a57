"""
A person's token for collections that ask for one, from a file beside the device's settings.

A line holds a token in hexadecimal digits; for an agent of several people, the person's name stands
behind it. The file is read whenever a token is needed, so that a new one takes effect at once.
"""

from dataclasses import dataclass
from pathlib import Path

from common.errors import SettingsError
from common.user_token import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Where tokens are kept; None if the person has none. Read by whoever owns the device only."""

    path: Path | None

    def token(self, person: str) -> bytes:
        """
        Find a person's token; empty if there is none.

        Raises:
            SettingsError: The file cannot be read, or a line holds no token. What it holds instead
                is not repeated.
        """
        if self.path is None:
            return b""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise SettingsError(f"token_file cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SettingsError("token_file is not text") from error
        found = b""
        for number, line in enumerate(lines, start=1):
            digits, _, name = line.strip().partition(" ")
            if not digits:
                continue
            if name.strip() == person:
                found = _read(digits, number)
        return found


def _read(digits: str, number: int) -> bytes:
    try:
        token = bytes.fromhex(digits)
    except ValueError:
        token = b""
    if len(token) != TOKEN_BYTES:
        raise SettingsError(
            f"line {number} of token_file holds no token: {2 * TOKEN_BYTES} hexadecimal digits"
        )
    return token
