"""
A folder with an authority and certificates for each party, made and renewed by an operator.

    FOLDER/authority.pem, authority.key    the authority; its key stays here
    FOLDER/PARTY/PARTY.pem, PARTY.key, authority.pem    files for the party's machine

A development authority's folder (tls_directory), with the parties' files beside the authority's,
can be shown and renewed too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.errors import SettingsError
from common.runtime.certificates import (
    AUTHORITY,
    PARTIES,
    Authority,
    Certificate,
    extra_hosts,
)
from common.runtime.state_directory import atomic_write

_NAME: Final = "shuffledp authority"
_OWNER_ONLY: Final = 0o700


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder of certificates."""

    path: Path

    def make(self, parties: Sequence[str], hosts: Sequence[str], now: float) -> None:
        """
        Make an authority, or use the existing one, and a certificate for each party.

        Raises SettingsError if a party is unknown, or has a certificate already.
        """
        unknown = sorted(set(parties) - set(PARTIES))
        if unknown:
            raise SettingsError(f"{', '.join(unknown)} is no party; parties: {', '.join(PARTIES)}")
        there = [party for party in parties if party in self._folders()]
        if there:
            raise SettingsError(
                f"{', '.join(there)} has a certificate already: shuffledp keys renew makes another"
            )
        try:
            self.path.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            if not (self.path / f"{AUTHORITY}.pem").exists():
                Authority.make(self.path, _NAME, now)
            authority = Authority.read(self.path)
            for party in parties:
                folder = self.path / party
                folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
                self._issue(authority, folder, party, hosts, now)
        except OSError as error:
            raise SettingsError(f"{error.filename} cannot be written: {error.strerror}") from error

    def renew(self, party: str | None, now: float) -> None:
        """
        Issue a new certificate for the same hosts to a party, or to every one that has one.

        Under the same authority: old and new are valid side by side until the old one ends. Raises
        SettingsError if there is no authority, or no certificate to renew.
        """
        authority = Authority.read(self.path)
        found = {one: folder for one, folder in self._folders().items() if party in {None, one}}
        if not found:
            raise SettingsError(f"there is no certificate of {party or 'any party'} in {self.path}")
        for one, folder in found.items():
            old = Certificate.read(folder / f"{one}.pem")
            self._issue(authority, folder, one, extra_hosts(old), now)

    def show(self) -> dict[str, tuple[Path, Certificate]]:
        """Return each certificate with its file; raise SettingsError if there is none."""
        folders = {AUTHORITY: self.path} | self._folders()
        files = {party: folder / f"{party}.pem" for party, folder in folders.items()}
        found = {
            one: (file, Certificate.read(file)) for one, file in files.items() if file.exists()
        }
        if not found:
            raise SettingsError(
                f"there is no certificate in {self.path}: shuffledp keys make puts some there"
            )
        return found

    def _folders(self) -> dict[str, Path]:
        """Return the folder of each party that has a certificate."""
        folders = [(one, folder) for one in PARTIES for folder in (self.path, self.path / one)]
        return {one: folder for one, folder in folders if (folder / f"{one}.pem").exists()}

    def _issue(
        self, authority: Authority, folder: Path, party: str, hosts: Sequence[str], now: float
    ) -> None:
        authority.issue(folder, party, now, hosts)
        if folder != self.path:
            trusted = (self.path / f"{AUTHORITY}.pem").read_bytes()
            atomic_write(folder / f"{AUTHORITY}.pem", trusted, 0o644)
