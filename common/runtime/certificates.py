"""
Certificates, and the authority that issues them to parties.

A certificate names a party, not a host: a caller checks which party its peer is.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.state_directory import atomic_write
from shuffledp.common.runtime.validation import read_file

PARTIES: Final = ("analyzer", "shuffler", "issuer", "user_agent", "operator")
"""The parties that a certificate may name."""
WITNESS: Final = "witness"
"""What the certificate of a third party's witness names."""
RELAY: Final = "relay"
"""What the certificate of a task's second shuffler names: another party's, with its authority."""
NAMED: Final = (*PARTIES, WITNESS, RELAY)
"""The parties for which an authority is trusted."""
FRONT_END: Final = "shuffler-front-end"
"""What the certificate of a shuffler's front-end names: devices accept it as the shuffler's, the
analyzer does not."""
INTERNAL_ROLES: Final = ("coordinator", "front-end", "worker", "scheduler", "postgres")
"""What a certificate by a party's internal authority may name: one of its own processes."""
AUTHORITY: Final = "authority"
LIFETIME_DAYS: Final = 14
"""Lifetime of a certificate by default: a stolen one is of no use afterwards. A timer renews it
after half of it, and has a week to be repaired."""
DEVELOPMENT_DAYS: Final = 365
"""Lifetime of a certificate whose authority's key is beside it."""
WARN_DAYS: Final = 5
"""A certificate should be renewed this many days before it expires."""
WARN_AUTHORITY_DAYS: Final = 60
"""The same for an authority, which others have to trust again."""

_AUTHORITY_LIFETIME: Final = datetime.timedelta(days=3650)
_LEEWAY: Final = datetime.timedelta(hours=1)
_LOOPBACK: Final = ("localhost", "127.0.0.1")
_LABEL: Final = "[A-Za-z0-9_-]{1,63}"
_HOST: Final = re.compile(rf"(\*\.{_LABEL}\.)?{_LABEL}(\.{_LABEL})*", re.ASCII)
_SECRET_FILE: Final = 0o600
_PUBLIC_FILE: Final = 0o644
_KEY_ERRORS: Final = (ValueError, TypeError, UnsupportedAlgorithm)
"""Exceptions that the library raises for bytes that are not a supported private key."""
_CERTIFICATE_ERRORS: Final = (
    *_KEY_ERRORS,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A parsed certificate."""

    parsed: x509.Certificate

    def __post_init__(self) -> None:
        """Read every field now, since the library parses lazily and fails late."""
        _ = self.name, self.names, self.end, self.parsed.public_key()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse the first certificate of a PEM file; raise SettingsError if there is none."""
        return cls.parse(read_file(path), str(path))

    @classmethod
    def parse(cls, raw: bytes, source: str = "the file") -> Self:
        """Parse the first certificate in PEM; raise SettingsError if `source` holds none."""
        try:
            return cls(x509.load_pem_x509_certificate(raw))
        except _CERTIFICATE_ERRORS as error:
            raise SettingsError(f"{source} does not hold a certificate in PEM") from error

    @property
    def name(self) -> str:
        """The common name, which is the party's; empty if there is none."""
        found = self.parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(found[0].value) if found else ""

    @property
    def names(self) -> list[str]:
        """All alternative names: the party's, hosts and IP addresses."""
        try:
            names = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return []
        hosts = names.value.get_values_for_type(x509.DNSName)
        return hosts + list(map(str, names.value.get_values_for_type(x509.IPAddress)))

    @property
    def is_authority(self) -> bool:
        """Whether the certificate may issue others."""
        found = (each.value for each in self.parsed.extensions)
        return any(isinstance(each, x509.BasicConstraints) and each.ca for each in found)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 64 hexadecimal digits."""
        return self.parsed.fingerprint(hashes.SHA256()).hex()

    @property
    def pem(self) -> str:
        """The certificate in PEM."""
        return self.parsed.public_bytes(Encoding.PEM).decode("ascii")

    @property
    def end(self) -> datetime.datetime:
        """The time of expiry, in UTC."""
        return self.parsed.not_valid_after_utc

    def days_left(self, now: float) -> int:
        """Return the whole days until the certificate expires; negative afterwards."""
        return (self.end - _moment(now)).days

    def is_half_over(self, now: float) -> bool:
        """Return whether half of the certificate's life has passed: a timer then renews it."""
        return _moment(now) - self.parsed.not_valid_before_utc >= self.end - _moment(now)

    def is_issued_by(self, authority: "Certificate") -> bool:
        """Return whether an authority issued this certificate directly."""
        try:
            self.parsed.verify_directly_issued_by(authority.parsed)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True

    def matches_key(self, key: bytes) -> bool:
        """Return whether a private key in PEM belongs to this certificate."""
        try:
            private = serialization.load_pem_private_key(key, None)
        except _KEY_ERRORS:
            return False
        form = (Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        own = self.parsed.public_key().public_bytes(*form)
        return private.public_key().public_bytes(*form) == own


class Authority:
    """Issues certificates. The authority's key stays in its own directory, with mode 0600."""

    def __init__(self, certificate: Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate: Final = certificate
        self._key = key

    @classmethod
    def make(cls, folder: Path, name: str, now: float, stem: str = AUTHORITY) -> Self:
        """Create an authority for ten years, and write STEM.pem and STEM.key."""
        key, subject = ec.generate_private_key(ec.SECP256R1()), _named(name)
        times = (_moment(now), _moment(now) + _AUTHORITY_LIFETIME)
        builder = _builder(subject, subject, key, times, authority=True)
        certificate = builder.sign(key, hashes.SHA256())
        return cls(_saved(folder, stem, certificate, key), key)

    @classmethod
    def make_missing(cls, folder: Path, name: str, now: float, stem: str = AUTHORITY) -> None:
        """Create a missing authority; raise SettingsError if half of one is there."""
        there = [os.path.lexists(folder / f"{stem}.{half}") for half in ("pem", "key")]
        if not any(there):
            cls.make(folder, name, now, stem)
        elif not all(there):
            raise SettingsError(
                f"{folder} has only one of {stem}.pem and {stem}.key: put the other back from a "
                "backup or, for a new authority, which all must trust, remove it"
            )

    @classmethod
    def read(cls, folder: Path, stem: str = AUTHORITY) -> Self:
        """Read the files of `make`; raise SettingsError if one is missing or damaged."""
        certificate = Certificate.read(folder / f"{stem}.pem")
        raw, key = read_file(folder / f"{stem}.key"), None
        with suppress(*_KEY_ERRORS):
            key = serialization.load_pem_private_key(raw, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SettingsError(f"{stem}.key does not hold a key that this program created")
        return cls(certificate, key)

    def issue(
        self,
        folder: Path,
        party: str,
        now: float,
        hosts: Sequence[str] = (),
        *,
        days: int = LIFETIME_DAYS,
    ) -> Certificate:
        """
        Issue a certificate with a new key to a party, and write PARTY.pem and PARTY.key.

        The certificate names the party, loopback and the hosts; a front-end's also names the
        shuffler, which it serves as. It expires `days` after `now` (in seconds since 1970 UTC) or,
        if earlier, with the authority. Earlier certificates stay valid.

        Raises SettingsError if a host is invalid or has the name of a party or role, in any case
        and with or without a final dot; or if the authority has expired.
        """
        hosts = [host.rstrip(".") for host in hosts]  # as TLS compares names
        taken = {*NAMED, FRONT_END, *INTERNAL_ROLES}
        if {host.casefold() for host in hosts} & taken:
            raise SettingsError(
                f"a host must not have a party's name or a role's: {', '.join(sorted(taken))}"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        names = dict.fromkeys((*_names_of(party), *_LOOPBACK, *hosts))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        times = (_moment(now), min(_moment(now) + datetime.timedelta(days), self.certificate.end))
        if times[1] <= times[0]:
            raise SettingsError(f"the authority's certificate expired on {times[1]:%Y-%m-%d}")
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        # It tells this authority from others with the same name.
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(_named(party), self.certificate.parsed.subject, key, times, authority=False)
            .add_extension(alternatives, critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _saved(folder, party, certificate, key)


def extra_hosts(certificate: Certificate) -> list[str]:
    """Return the hosts that a certificate names besides its party and loopback."""
    usual = {*_names_of(certificate.name), *_LOOPBACK}
    return [name for name in certificate.names if name not in usual]


def _names_of(party: str) -> tuple[str, ...]:
    """Return the names that a server's certificate must have, the party's own first."""
    return (party, "shuffler") if party == FRONT_END else (party,)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST.fullmatch(name):
            raise SettingsError(
                "a host must be an ASCII name or an IP address, without port and brackets"
            ) from None
        return x509.DNSName(name)


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    times: tuple[datetime.datetime, datetime.datetime],
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    """Return a builder of a certificate, which may sign others if it is an `authority`."""
    usages = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        **dict.fromkeys((*usages, "crl_sign", "encipher_only", "decipher_only"), False),
    )
    constraints = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(times[0] - _LEEWAY)
        .not_valid_after(times[1])
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(usage, critical=True)
    )


def _saved(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Certificate:
    for path in (folder / f"{name}.key", folder / f"{name}.pem"):
        if path.is_symlink():
            raise SettingsError(f"{path} is a link to a file that others wrote: remove the link")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    atomic_write(folder / f"{name}.key", private, _SECRET_FILE)
    atomic_write(folder / f"{name}.pem", certificate.public_bytes(Encoding.PEM), _PUBLIC_FILE)
    return Certificate(certificate)
