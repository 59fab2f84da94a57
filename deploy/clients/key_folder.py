"""
Create and renew a folder of TLS certificates. Run by the operator.

    FOLDER/authority.pem, authority.key    the authority; its key stays here
    FOLDER/PARTY/PARTY.pem, PARTY.key, authority.pem    files for the party's machine

A development folder (tls_directory), with all files in one folder, can be shown and renewed too.
The folder of a party's internal authority has the same form, with the party's roles as names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.errors import SettingsError
from common.runtime.certificates import (
    AUTHORITY,
    FRONT_END,
    INTERNAL_ROLES,
    ISSUER,
    PARTIES,
    Authority,
    Certificate,
    extra_hosts,
)
from common.runtime.state_directory import atomic_write

_NAME: Final = "shuffledp authority"
_CERTIFIED: Final = (*PARTIES, ISSUER, FRONT_END)
_NAMES: Final = (*_CERTIFIED, *INTERNAL_ROLES)
_OWNER_ONLY: Final = 0o700


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder with an authority and the parties' certificates."""

    path: Path

    def make(self, parties: Sequence[str], hosts: Sequence[str], now: float) -> None:
        """Create a missing authority, and certificates of parties, or of roles within one party."""
        unknown = sorted(set(parties) - set(_NAMES))
        if unknown:
            raise SettingsError(
                f"unknown party: {', '.join(unknown)}; the parties are {', '.join(_CERTIFIED)}, "
                f"and the roles within one {', '.join(INTERNAL_ROLES)}"
            )
        if len({name in _CERTIFIED for name in (*parties, *self._folders())}) > 1:
            raise SettingsError(
                "one authority must not certify parties and roles: anyone with a certificate of "
                "a party's internal authority can run code in its engine"
            )
        existing = [party for party in parties if party in self._folders()]
        if existing:
            raise SettingsError(
                f"{', '.join(existing)} already has a certificate; use shuffledp keys renew"
            )
        try:
            self.path.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            if not (self.path / f"{AUTHORITY}.pem").exists():
                Authority.make(self.path, _NAME, now)
            authority = Authority.read(self.path)
            for party in parties:
                (self.path / party).mkdir(mode=_OWNER_ONLY, exist_ok=True)
                self._issue(authority, self.path / party, party, hosts, now)
        except OSError as error:
            raise SettingsError(f"{error.filename} cannot be written: {error.strerror}") from error

    def renew(self, party: str | None, now: float) -> None:
        """Issue new certificates for the same hosts to a party, or to all that have one."""
        authority = Authority.read(self.path)
        folders = {name: path for name, path in self._folders().items() if party in {None, name}}
        if not folders:
            raise SettingsError(f"{self.path} has no certificate for {party or 'any party'}")
        for name, folder in folders.items():
            old = Certificate.read(folder / f"{name}.pem")
            self._issue(authority, folder, name, extra_hosts(old), now)

    def show(self) -> dict[str, tuple[Path, Certificate]]:
        """Return certificates' files and contents by name; raise SettingsError if none exist."""
        shown = {}
        for name, folder in ({AUTHORITY: self.path} | self._folders()).items():
            if (file := folder / f"{name}.pem").exists():
                shown[name] = (file, Certificate.read(file))
        if not shown:
            raise SettingsError(
                f"{self.path} has no certificate; create some with shuffledp keys make"
            )
        return shown

    def _folders(self) -> dict[str, Path]:
        """Return the folder of each party that has a certificate, by party."""
        folders = [(party, path) for party in _NAMES for path in (self.path, self.path / party)]
        return {party: path for party, path in folders if (path / f"{party}.pem").exists()}

    def _issue(
        self, authority: Authority, folder: Path, party: str, hosts: Sequence[str], now: float
    ) -> None:
        """Issue a certificate into a folder, with a copy of the authority's certificate."""
        authority.issue(folder, party, now, hosts)
        if folder != self.path:
            trusted = (self.path / f"{AUTHORITY}.pem").read_bytes()
            atomic_write(folder / f"{AUTHORITY}.pem", trusted, 0o644)
