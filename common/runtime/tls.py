"""
TLS between processes: a process's certificate, and its trust in others'.

Files are checked, created in a development directory if missing, and reloaded when replaced.
"""

import fcntl
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import grpc

from shuffledp.common.errors import CallerError, SettingsError
from shuffledp.common.runtime import certificates, logs
from shuffledp.common.runtime.certificates import WARN_DAYS, Authority, Certificate
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.validation import file_version, read_file

if TYPE_CHECKING:  # clients need no settings
    from shuffledp.common.runtime.settings import ServiceSettings

_DEVELOPMENT_NAME: Final = "shuffledp development authority"
_PART: Final = re.compile(
    rb"(?ms)^(party|revoked):(.*?)$|-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----"
)
_MISTAKE: Final = re.compile(rb"(?i)(?:^|\n)\W*(?:party|revoked)\b|-----BEGIN")
"""What other text must not have: a label in another form, or a PEM of another kind."""
_FORMS: Final = (
    "has a line other than `party: PARTY` before a certificate, or `revoked: SHA-256` with 64 "
    "hexadecimal digits"
)
_FINGERPRINT: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Trust:
    """
    The content of a file of trusted authorities.

    The file is one certificate, of an authority that may certify every party; or one for each
    party, after a line `party: PARTY`. Lines `revoked: SHA-256` name revoked certificates, by 64
    hexadecimal digits.
    """

    authorities: Mapping[str, Certificate]
    """Authorities by party; the one for every party under ""."""
    revoked: frozenset[str] = frozenset()
    """Fingerprints of revoked certificates."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file, or raise SettingsError."""
        return cls.parse(read_file(path), str(path))

    @classmethod
    def parse(cls, raw: bytes, source: str = "tls_authority") -> Self:
        """Parse the content of a file, which is named in errors, or raise SettingsError."""
        authorities: dict[str, Certificate] = {}
        revoked, party = set(), ""
        if _MISTAKE.search(_PART.sub(b"\n", raw)):
            raise SettingsError(f"{source} {_FORMS}")
        for part in _PART.finditer(raw):
            text = (part[2] or b"").decode("ascii", "replace").strip()
            if part[1] is None:
                if party in authorities or (authorities and "" in (party, *authorities)):
                    raise SettingsError(
                        f"{source} holds several authorities: each needs a line `party: PARTY`, "
                        "with another party, as shuffledp keys trust writes it"
                    )
                authorities[party], party = Certificate.parse(part[0], source), ""
            elif part[1] == b"party" and not party and text in certificates.NAMED:
                party = text
            elif part[1] == b"revoked" and _FINGERPRINT.fullmatch(text):
                revoked.add(text)
            else:
                raise SettingsError(f"{source} {_FORMS}")
        if not authorities or party:
            raise SettingsError(f"{source} does not hold a certificate in PEM")
        return cls(authorities, frozenset(revoked))

    def to_bytes(self) -> bytes:
        """Return a file's content."""
        labels = {name: f"party: {name}\n" if name else "" for name in self.authorities}
        parts = [labels[name] + each.pem for name, each in self.authorities.items()]
        return "".join([*parts, *(f"revoked: {each}\n" for each in sorted(self.revoked))]).encode()

    def authority(self, party: str) -> Certificate | None:
        """Return the authority that may certify a party; None if none may."""
        name = "shuffler" if party == certificates.FRONT_END else party
        return self.authorities.get(name, self.authorities.get(""))

    def roots(self, party: str | None = None) -> bytes:
        """Return the PEM of the authority of a party, or of all, or raise SettingsError."""
        if party is None:
            return "".join(each.pem for each in self.authorities.values()).encode()
        found = self.authority(party)
        if found is None:
            raise SettingsError(
                f"no authority is trusted for the {party}: shuffledp keys trust adds it"
            )
        return found.pem.encode()

    def verified(self, certificate: Certificate) -> frozenset[str]:
        """
        Return the names of a caller's certificate that its issuer may certify.

        The common name alone counts or, without one, the alternative names. gRPC accepts a
        certificate by any authority of the file; this checks that it is by the named party's.

        Raises CallerError if the certificate is revoked.
        """
        if certificate.fingerprint in self.revoked:
            raise CallerError(f"the caller's certificate is revoked: {certificate.fingerprint}")
        names = frozenset([certificate.name] if certificate.name else certificate.names)
        if "" in self.authorities:
            return names
        issuers = {name: self.authority(name) for name in names}
        return frozenset(
            name for name, issuer in issuers.items() if issuer and certificate.is_issued_by(issuer)
        )


@dataclass(frozen=True, slots=True, repr=False)
class TlsIdentity:
    """A process's certificate chain and key (both may be empty) in PEM, and its file of trust."""

    certificate: bytes
    key: bytes
    authority: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of a process's TLS identity. Renewed files are reloaded."""

    certificate: Path | None
    key: Path | None
    authority: Path | None = None
    """None of a server of browsers, which have their own authorities."""

    @classmethod
    def of(cls, settings: "ServiceSettings", party: str) -> Self | None:
        """Return the party's files named in the settings; None for plaintext."""
        if settings.tls_directory is not None:
            return cls.within(settings.tls_directory, party)
        if settings.tls_authority is None:
            return None
        return cls(
            certificate=settings.tls_certificate,
            key=settings.tls_key,
            authority=settings.tls_authority,
        )

    @classmethod
    def within(cls, directory: Path, party: str) -> Self:
        """Return a party's files in a development directory."""
        return cls(
            certificate=directory / f"{party}.pem",
            key=directory / f"{party}.key",
            authority=directory / f"{certificates.AUTHORITY}.pem",
        )

    def read(self) -> TlsIdentity:
        """Read the files; raise SettingsError if one is unusable or the key does not match."""
        identity = TlsIdentity(
            read_file(self.certificate) if self.certificate else b"",
            read_file(self.key) if self.key else b"",
            read_file(self.authority) if self.authority else b"",
        )
        if self.certificate and not Certificate.read(self.certificate).matches_key(identity.key):
            raise SettingsError(f"{self.key} is not the key of {self.certificate}")
        if self.authority:
            Trust.read(self.authority)  # an empty one would silently refuse every peer
        return identity

    def check(self, party: str, now: float) -> None:
        """Raise SettingsError for another party or after expiry; warn of other flaws in the log."""
        if self.certificate is None:
            return
        certificate = Certificate.read(self.certificate)
        if self.authority and party not in {certificate.name, *certificate.names}:
            raise SettingsError(
                f"the certificate in {self.certificate} names {certificate.name or 'nobody'}; it "
                f"must name {party}"
            )
        authority = self.authority and Trust.read(self.authority).authority(party)
        if self.authority and not (authority and certificate.is_issued_by(authority)):
            logs.event("certificate is not by tls_authority", {"party": party}, level="WARNING")
        days = certificate.days_left(now)
        if days < 0:
            renewing = "Renew it: shuffledp keys renew" if self.authority else "Renew it"
            raise SettingsError(
                f"the certificate in {self.certificate} expired on {certificate.end:%Y-%m-%d}. "
                f"{renewing}"
            )
        if days < WARN_DAYS:
            logs.event("certificate ends soon", {"party": party, "days": days}, level="WARNING")

    def version(self) -> tuple[tuple[int, int] | None, ...]:
        """Return a value that changes when a file is replaced."""
        paths = (self.certificate, self.key, self.authority)
        return tuple(file_version(path) for path in paths if path)


class Renewal:
    """Detects that a process's TLS files were replaced."""

    def __init__(
        self, files: TlsFiles, version: tuple[tuple[int, int] | None, ...] | None = None
    ) -> None:
        """`version` is that of the files before they were read; by default, the present one."""
        self._files = files
        self._version = self._refused = version or files.version()

    def take(self) -> TlsIdentity | None:
        """Return the identity if renewed since the last call; None if not, or not yet usable."""
        try:
            version = self._files.version()
            if version == self._version:
                return None
            renewed = self._files.read()
        except SettingsError as error:
            if version != self._refused:
                logs.event("TLS files not used", logs.error_fields(error), level="ERROR")
            self._refused = version
            return None
        self._version = version
        return renewed


def server_credentials(files: TlsFiles, *, ask_for_certificates: bool) -> grpc.ServerCredentials:
    """Create server credentials that reload replaced files at the next handshake."""
    renewal = Renewal(files)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        identity = renewal.take()
        return None if identity is None else _configuration(identity)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files.read()),
        renewed,  # type: ignore[arg-type]  # with None, gRPC keeps its files
        ask_for_certificates,
    )


def _configuration(identity: TlsIdentity) -> grpc.ServerCertificateConfiguration:
    pair = (identity.key, identity.certificate)
    roots = Trust.parse(identity.authority).roots()
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A process's TLS files, and their content at its start."""

    files: TlsFiles
    identity: TlsIdentity
    version: tuple[tuple[int, int] | None, ...] | None = None
    """The files' version before they were read."""

    @classmethod
    def open(cls, files: TlsFiles, party: str, clock: Clock) -> Self:
        """Read and check a party's files. Raises the errors of `TlsFiles.read` and `.check`."""
        version = files.version()
        files.check(party, clock.now())
        return cls(files=files, identity=files.read(), version=version)


class VerifiedCallers:
    """Checks callers' certificates against the file of trust, which is read again if replaced."""

    def __init__(self, tls: Tls) -> None:
        alone = TlsFiles(certificate=None, key=None, authority=tls.files.authority)
        self._renewal = Renewal(alone, tls.version and tls.version[-1:])
        self._trust = Trust.parse(tls.identity.authority)

    def verified(self, certificate: bytes) -> frozenset[str]:
        """Return the names in a caller's PEM as `Trust.verified` does. Cost: 0.2 ms."""
        if renewed := self._renewal.take():
            self._trust = Trust.parse(renewed.authority)
        return self._trust.verified(Certificate.parse(certificate))


def identity_for(settings: "ServiceSettings", party: str, clock: Clock) -> Tls | None:
    """Open or create the TLS identity in the settings; None for plaintext. Errors: `Tls.open`."""
    if settings.tls_directory is not None:
        if party in {"analyzer", certificates.RELAY}:  # their operators need a certificate
            development_files(settings.tls_directory, "operator", clock)
        development_files(settings.tls_directory, party, clock)
    files = TlsFiles.of(settings, party)
    return Tls.open(files, party, clock) if files else None


def development_files(directory: Path, party: str, clock: Clock) -> TlsFiles:
    """
    Find a party's files in a directory, and create its certificate or authority if missing.

    A lock file lets only one of several starting processes create the authority. A certificate that
    expires within WARN_DAYS is replaced.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = TlsFiles.within(directory, party)
    now = clock.now()
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Authority.make_missing(directory, _DEVELOPMENT_NAME, now)
        if not _is_current(files, now):
            days = certificates.DEVELOPMENT_DAYS
            Authority.read(directory).issue(directory, party, now, days=days)
    return files


def internal_tls(directory: Path, role: str, clock: Clock) -> Tls:
    """
    Open the TLS identity of one of a party's processes.

    The coordinator creates what is missing: the authority, and a certificate for each role. It
    creates nothing if the authority's key is kept elsewhere.

    Raises the errors of `Tls.open`.
    """
    authority = directory / f"{certificates.AUTHORITY}.pem"
    kept_elsewhere = authority.exists() and not authority.with_suffix(".key").exists()
    if role == "coordinator" and not kept_elsewhere:
        for name in certificates.INTERNAL_ROLES:
            development_files(directory, name, clock)
    return Tls.open(TlsFiles.within(directory, role), role, clock)


def client_identity(
    authority: Path, certificate: Path | None, key: Path | None, now: float
) -> TlsIdentity:
    """
    Read an operator's TLS files; by default operator.pem and .key beside the authority, or none.

    `now` is in seconds since 1970 UTC. Raises the errors of `TlsFiles.read` and `TlsFiles.check`.
    """
    default = authority.parent / "operator.pem"
    chosen = certificate or (default if default.exists() else None)
    chosen_key = (key or default.with_suffix(".key")) if chosen else None
    files = TlsFiles(certificate=chosen, key=chosen_key, authority=authority)
    files.check("operator", now)
    return files.read()


def _is_current(files: TlsFiles, now: float) -> bool:
    if not (files.certificate and files.key and files.certificate.exists() and files.key.exists()):
        return False
    return Certificate.read(files.certificate).days_left(now) >= WARN_DAYS
