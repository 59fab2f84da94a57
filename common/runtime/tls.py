"""
TLS between processes. For development, an authority of one's own, made on first start.

A certificate names a party, not a host: a caller checks that the other end *is* the analyzer.
"""

import datetime
import fcntl
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.errors import SettingsError
from common.runtime.clock import Clock
from common.runtime.settings import ServiceSettings
from common.runtime.state import write_whole

_AUTHORITY_NAME: Final = "shuffledp development authority"
_LIFETIME: Final = datetime.timedelta(days=365)
_LEEWAY: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, repr=False)
class TlsIdentity:
    """
    A process's certificate chain, key, and the authority that it trusts; all PEM.

    Certificate and key are empty for a process that only calls others.
    """

    certificate: bytes
    key: bytes
    authority: bytes


def identity_for(settings: ServiceSettings, party: str, clock: Clock) -> TlsIdentity | None:
    """
    Find or make the TLS identity that the settings ask for; None for plaintext.

    Raises:
        SettingsError: A file cannot be read.
    """
    if settings.tls_directory is not None:
        return development_identity(settings.tls_directory, party, clock)
    if settings.tls_authority is not None:
        try:
            return TlsIdentity(
                settings.tls_certificate.read_bytes() if settings.tls_certificate else b"",
                settings.tls_key.read_bytes() if settings.tls_key else b"",
                settings.tls_authority.read_bytes(),
            )
        except OSError as error:
            raise SettingsError(f"a TLS file cannot be read: {error.strerror}") from error
    return None


def development_identity(directory: Path, party: str, clock: Clock) -> TlsIdentity:
    """
    Make a certificate for `party` under the directory's authority, which is made if need be.

    Several processes may start at once: a lock file lets one make the authority.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_file, authority_key_file = directory / "authority.pem", directory / "authority.key"
    certificate_file, key_file = directory / f"{party}.pem", directory / f"{party}.key"
    now = datetime.datetime.fromtimestamp(clock.now(), datetime.UTC)
    with _locked(directory / ".lock"):
        if not (authority_file.exists() and authority_key_file.exists()):
            key = ec.generate_private_key(ec.SECP256R1())
            write_whole(authority_key_file, _private_pem(key), 0o600)
            write_whole(authority_file, _pem(_authority_certificate(key, now)), 0o644)
        if not (certificate_file.exists() and key_file.exists()):
            authority_key = _authority_key(authority_key_file.read_bytes())
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _party_certificate(party, key, authority_key, now)
            write_whole(key_file, _private_pem(key), 0o600)
            write_whole(certificate_file, _pem(certificate), 0o644)
        return TlsIdentity(
            certificate_file.read_bytes(), key_file.read_bytes(), authority_file.read_bytes()
        )


def _authority_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError("the development authority's key is not one made here") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError("the development authority's key is not one made here")
    return key


def _authority_certificate(
    key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _AUTHORITY_NAME)])
    return (
        _builder(name, name, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )


def _party_certificate(
    party: str,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _AUTHORITY_NAME)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
    names = [
        x509.DNSName(party),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        _builder(subject, issuer, key, now)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + _LIFETIME)
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
