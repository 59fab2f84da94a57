"""
The issuer's cap on the tokens of one person for one population in one period.

Periods follow each other without a gap and are the same for everybody. People are counted under a
hash with the period's key. Once the key is destroyed, counts cannot be linked to people.
"""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from shuffledp.common.dates import utc
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.state_directory import StateDirectory

_FILES: Final = "period-*.key"
_KEY_BYTES: Final = 32
_DAY: Final = 86_400
_KEPT_AFTER_END: Final = 600
"""Seconds for which an ended period's key is kept, for requests that began before its end."""
_LABEL: Final = b"shuffledp v1 tokens of a person\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A token to count, unless the person has had `most` in the period."""

    end: int
    """The period's end, in seconds since 1970 UTC."""
    person: bytes
    """The period's hash of the person and the population."""
    most: int
    days: int
    """The period's length."""

    def refusal(self) -> str:
        """Return the error message for a person who has had all tokens."""
        return (
            "this person has reached the issuer's cap of tokens for this population, "
            f"{self.most} in {self.days} days; the next period begins at {utc(self.end)}"
        )


class TokenCap:
    """Counts tokens per person, population and period. Times are in seconds since 1970 UTC."""

    def __init__(self, state: StateDirectory, most: int | None, days: int | None) -> None:
        """
        Read the periods' keys. `most` tokens per `days` days; both None for no cap.

        Raises SettingsError if a key is damaged or sealed under another state key.
        """
        self._state, self._most, self._days = state, most, days
        ends = [name.removeprefix("period-").removesuffix(".key") for name in state.names(_FILES)]
        self._keys = {int(end): self._key(end) for end in ends if end.isdecimal()}

    def charge(self, population: str, person: str, now: float) -> Charge | None:
        """
        Return the charge for one more token of a person, or None without a cap.

        The first call of a period stores its key, which takes milliseconds.
        """
        if self._most is None or self._days is None:
            return None
        seconds = self._days * _DAY
        end = (int(now) // seconds + 1) * seconds
        if end not in self._keys:
            self._keys[end] = self._key(str(end))
        name = f"{population}\0{person}".encode(errors="surrogatepass")
        tag = hmac.digest(self._keys[end], _LABEL + name, sha256)
        return Charge(end=end, person=tag, most=self._most, days=self._days)

    def check_complete(self, counted: Iterable[int], now: float) -> None:
        """Raise SettingsError if the key of a period in which tokens were counted is missing."""
        for end in counted:
            if end not in self._keys and not _is_over(end, now):
                raise SettingsError(
                    f"period-{end}.key is missing in the state directory, and the database has "
                    "counts under it: put it back or, to count every person's tokens from 0 "
                    f"again, erase the rows of issuer.sqlite in counted with period = {end}"
                )

    def destroy_ended(self, now: float) -> None:
        """Destroy the keys of ended periods."""
        for end in [end for end in self._keys if _is_over(end, now)]:
            self._state.destroy(f"period-{end}.key")
            del self._keys[end]
            logs.event("period of tokens ended", {})

    def held(self) -> frozenset[int]:
        """Return the ends of the periods with a key."""
        return frozenset(self._keys)

    def _key(self, end: str) -> bytes:
        return self._state.secret(f"period-{end}.key", partial(secrets.token_bytes, _KEY_BYTES))


def _is_over(end: int, now: float) -> bool:
    return end + _KEPT_AFTER_END <= now
