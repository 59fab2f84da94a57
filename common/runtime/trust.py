"""Trust in certificates: the authority of each party, and revoked certificates."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from shuffledp.common.errors import CallerError, SettingsError
from shuffledp.common.runtime.certificates import FRONT_END, NAMED, Certificate
from shuffledp.common.runtime.validation import read_file

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
            elif part[1] == b"party" and not party and text in NAMED:
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
        name = "shuffler" if party == FRONT_END else party
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
