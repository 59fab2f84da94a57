"""
Create, renew and revoke a folder of TLS certificates. Run by the operator.

    FOLDER/authorities/PARTY.pem, PARTY.key    the authority of each party; the key stays here
    FOLDER/authority.pem, PARTY/authority.pem    the file of trust: all of these authorities
    FOLDER/issued.txt, revoked.txt    lines `SHA-256 PARTY END`, one for each certificate
    FOLDER/PARTY/PARTY.pem, PARTY.key, authority.pem    files for the party's machine

Authorities of other organizations have no key here. A shared folder, for development, has one
authority for all parties, in authority.pem and authority.key. So has the folder of a party's
internal authority, with the party's roles as names. A development folder (tls_directory), with all
files in one folder, can be shown and renewed too.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime import certificates
from shuffledp.common.runtime.certificates import AUTHORITY, NAMED, Authority, Certificate
from shuffledp.common.runtime.state_directory import atomic_write
from shuffledp.common.runtime.validation import read_file
from shuffledp.deploy.terminal.files import all_or_nothing

_NAME: Final = "shuffledp authority"
_CERTIFIED: Final = (*NAMED, certificates.FRONT_END)
_NAMES: Final = (*_CERTIFIED, *certificates.INTERNAL_ROLES)
_ISSUED: Final = "issued.txt"
_REVOKED: Final = "revoked.txt"
_FINGERPRINT: Final = re.compile("[0-9a-f]{64}")
_OWNER_ONLY: Final = 0o700
_PUBLIC: Final = 0o644


class IssuedCertificate(NamedTuple):
    """A line about a certificate, in a folder's lists; "-" stands for what is not known."""

    fingerprint: str
    party: str
    end: str
    """Time of expiry in UTC, in ISO 8601."""


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder with authorities and the parties' certificates."""

    path: Path

    @property
    def is_shared(self) -> bool:
        """Whether one authority here certifies all parties, or all roles of one."""
        return (self.path / f"{AUTHORITY}.pem").exists() and not self._authorities.exists()

    @property
    def _authorities(self) -> Path:
        return self.path / "authorities"

    def make(
        self,
        parties: Sequence[str],
        hosts: Sequence[str],
        now: float,
        days: int = certificates.LIFETIME_DAYS,
        *,
        shared: bool = False,
    ) -> None:
        """
        Create missing authorities, and certificates of parties, or of roles within one party.

        Each party has an authority of its own, unless all are `shared`, as those of roles are.
        """
        unknown = sorted(set(parties) - set(_NAMES))
        if unknown:
            raise SettingsError(
                f"unknown party: {', '.join(unknown)}; the parties are {', '.join(_CERTIFIED)}, "
                f"and the roles within one {', '.join(certificates.INTERNAL_ROLES)}"
            )
        if len({name in _CERTIFIED for name in (*parties, *self._folders())}) > 1:
            raise SettingsError(
                "one authority must not certify parties and roles: anyone with a certificate of "
                "a party's internal authority can run code in its engine"
            )
        existing = sorted({*parties} & {*self._current()})
        if existing:
            raise SettingsError(
                f"{', '.join(existing)} already has a certificate; use shuffledp keys renew"
            )
        shared = shared or set(parties) <= set(certificates.INTERNAL_ROLES)
        if shared != self.is_shared and (self.path / f"{AUTHORITY}.pem").exists():
            kind = "one shared authority" if self.is_shared else "an authority for each party"
            raise SettingsError(f"{self.path} has {kind}; use --shared only for a shared one")
        with self._whole():
            root = self.path if shared else self._authorities
            root.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            for party in parties:
                folder, stem = self._authority_of(party)
                name = _NAME if shared else f"{_NAME} of {stem}"
                Authority.make_missing(folder, name, now, stem)
                (self.path / party).mkdir(mode=_OWNER_ONLY, exist_ok=True)
                self._issue(self.path / party, party, hosts, now, days)
            self._write_trust()

    def renew(
        self,
        party: str | None,
        now: float,
        days: int = certificates.LIFETIME_DAYS,
        *,
        force: bool = False,
    ) -> list[str]:
        """
        Issue new certificates for the same hosts to a party, or to all that have one.

        Without `force`, renews those of which half of the life has passed. Returns the renewed
        parties. A revoked certificate is never renewed.

        Raises:
            SettingsError: The named party has no certificate, or a revoked one; or the authority
                cannot issue one.
        """
        current = self._current()
        if party in self.revoked() - {*current}:
            raise SettingsError(
                f"the certificate of the {party} is revoked; make a new one: shuffledp keys make"
            )
        chosen = {name: path for name, path in self._folders().items() if party in {None, name}}
        if not chosen:
            raise SettingsError(f"{self.path} has no certificate for {party or 'any party'}")
        due = [name for name in chosen if name in current]
        due = [name for name in due if force or current[name].is_half_over(now)]
        with self._whole():
            for name in due:
                self._issue(chosen[name], name, certificates.extra_hosts(current[name]), now, days)
            self._write_trust()
        return due

    def trust(self, party: str, file: Path) -> Certificate:
        """
        Trust another organization's authority for its party alone, in place of an earlier one.

        Raises:
            SettingsError: The party is unknown or certified here; or the file has no authority for
                it, or that of another party.
        """
        from shuffledp.common.runtime.tls import Trust  # noqa: PLC0415  # help needs no gRPC

        if party not in NAMED:
            raise SettingsError(f"unknown party: {party}; the parties are {', '.join(NAMED)}")
        if self.is_shared or self.issues(party):
            raise SettingsError(f"{self.path} has the authority of the {party} itself")
        found = Trust.read(file).authority(party)
        if found is None or not found.is_authority:
            raise SettingsError(f"{file} has no authority of the {party}")
        for other in set(NAMED) - {party}:
            path = self._authorities / f"{other}.pem"
            if path.exists() and Certificate.read(path).fingerprint == found.fingerprint:
                raise SettingsError(f"{file} has the authority of the {other}, not of the {party}")
        with self._whole():
            self._authorities.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            atomic_write(self._authorities / f"{party}.pem", found.pem.encode(), _PUBLIC)
            self._write_trust()
        return found

    def issues(self, party: str) -> bool:
        """Return whether the key of the party's authority is here."""
        folder, stem = self._authority_of(party)
        return (folder / f"{stem}.key").exists()

    def revoke(self, which: str, now: float) -> list[IssuedCertificate]:
        """
        Revoke all valid certificates of a party, or one by its SHA-256, 64 hexadecimal digits.

        Records them in revoked.txt and in the files of trust: servers that get such a file refuse
        them at once. Returns what was revoked; raises SettingsError if the party has none.
        """
        known = self._list(_ISSUED)
        for name, one in self._current().items():
            known[one.fingerprint] = IssuedCertificate(one.fingerprint, name, one.end.isoformat())
        if _FINGERPRINT.fullmatch(which):
            found = [known.get(which, IssuedCertificate(which, "-", "-"))]
        else:
            moment = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat()
            found = [one for one in known.values() if one.party == which and one.end > moment]
        if not found:
            raise SettingsError(f"{self.path} has no valid certificate for {which}")
        lines = self._list(_REVOKED) | {one.fingerprint: one for one in found}
        with self._whole():
            self._write_list(_REVOKED, lines)
            self._write_trust()
        return found

    def revoked(self) -> set[str]:
        """Return the parties, and the SHA-256 of certificates, that were revoked."""
        return {text for one in self._list(_REVOKED).values() for text in one[:2]}

    def show(self) -> dict[str, tuple[Path, Certificate]]:
        """Return certificates' files and contents by name; raise SettingsError if none exist."""
        trusted = self._trusted().items()
        files = {f"{AUTHORITY} of {name}" if name else AUTHORITY: file for name, file in trusted}
        files |= {name: folder / f"{name}.pem" for name, folder in self._folders().items()}
        shown = {name: (file, Certificate.read(file)) for name, file in files.items()}
        if not shown:
            raise SettingsError(f"{self.path} has no certificate; use shuffledp keys make")
        return shown

    def _whole(self) -> AbstractContextManager[None]:
        """Return a context that undoes a failed change of the folder."""
        folders = [self.path, self._authorities, *(self.path / name for name in _NAMES)]
        return all_or_nothing(folders, "*.pem", "*.key", "*.txt")

    def _folders(self) -> dict[str, Path]:
        """Return the folder of each party that has a certificate, by party."""
        folders = [(party, path) for party in _NAMES for path in (self.path, self.path / party)]
        return {party: path for party, path in folders if (path / f"{party}.pem").exists()}

    def _current(self) -> dict[str, Certificate]:
        """Return the parties' certificates that are not revoked."""
        revoked = self.revoked()
        found = {name: Certificate.read(p / f"{name}.pem") for name, p in self._folders().items()}
        return {name: one for name, one in found.items() if one.fingerprint not in revoked}

    def _issue(self, folder: Path, party: str, hosts: Sequence[str], now: float, days: int) -> None:
        """Issue a certificate into a folder, and record it."""
        authority = Authority.read(*self._authority_of(party))
        issued = authority.issue(folder, party, now, hosts, days=days)
        line = IssuedCertificate(issued.fingerprint, party, issued.end.isoformat())
        self._write_list(_ISSUED, self._list(_ISSUED) | {line.fingerprint: line})

    def _write_trust(self) -> None:
        """Write the file of trust here and into the parties' folders, where it has changed."""
        from shuffledp.common.runtime.tls import Trust  # noqa: PLC0415  # help needs no gRPC

        authorities = {name: Certificate.read(file) for name, file in self._trusted().items()}
        content = Trust(authorities, frozenset(self._list(_REVOKED))).to_bytes()
        for folder in {self.path, *self._folders().values()}:
            file = folder / f"{AUTHORITY}.pem"
            if not file.exists() or file.read_bytes() != content:
                atomic_write(file, content, _PUBLIC)

    def _authority_of(self, party: str) -> tuple[Path, str]:
        """Return the folder and the stem of the files of a party's authority."""
        if not self._authorities.exists():
            return self.path, AUTHORITY
        return self._authorities, "shuffler" if party == certificates.FRONT_END else party

    def _trusted(self) -> dict[str, Path]:
        """Return the files of the authorities by party; the one of a shared folder under ""."""
        shared = {"": self.path / f"{AUTHORITY}.pem"} if self.is_shared else {}
        files = {party: self._authorities / f"{party}.pem" for party in NAMED} | shared
        return {party: file for party, file in files.items() if file.exists()}

    def _list(self, name: str) -> dict[str, IssuedCertificate]:
        """Read a list of certificates, by SHA-256, or raise SettingsError."""
        file, found = self.path / name, {}
        lines = read_file(file).decode(errors="replace").splitlines() if file.exists() else []
        for number, line in enumerate(lines, start=1):
            match line.split():
                case [digits, party, end] if _FINGERPRINT.fullmatch(digits):
                    found[digits] = IssuedCertificate(digits, party, end)
                case _:
                    raise SettingsError(f"line {number} of {name} is not `SHA-256 PARTY END`")
        return found

    def _write_list(self, name: str, lines: Mapping[str, IssuedCertificate]) -> None:
        text = "".join(f"{' '.join(line)}\n" for line in lines.values())
        atomic_write(self.path / name, text.encode(), _PUBLIC)
