import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import CallerError, SettingsError
from shuffledp.common.runtime.certificates import FRONT_END, Authority, Certificate
from shuffledp.common.runtime.tls import Tls, Trust, VerifiedCallers, development_files
from tests.support.tables import table

_NOW = ManualClock().now()


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Authority]:
    """Return the authorities of two organizations."""
    folder = tmp_path_factory.mktemp("authorities")
    return {name: Authority.make(folder, name, _NOW, name) for name in ("analyzer", "shuffler")}


def _pem(authorities: dict[str, Authority], name: str) -> bytes:
    return authorities[name].certificate.pem.encode()


def _both(authorities: dict[str, Authority]) -> bytes:
    parts = (f"party: {name}\n".encode() + _pem(authorities, name) for name in authorities)
    return b"".join(parts) + b"revoked: " + b"ab" * 32 + b"\n"


def test_an_authority_certifies_its_own_party_alone(
    authorities: dict[str, Authority], tmp_path: Path
) -> None:
    """The analyzer's authority can name the shuffler in a certificate, and nobody accepts it."""
    trust = Trust.parse(_both(authorities))
    assert trust.to_bytes() == Trust.parse(trust.to_bytes()).to_bytes()
    for issuer, authority in authorities.items():
        assert authority.certificate.pem.encode() == trust.roots(issuer)
        for named in authorities:
            certificate = authority.issue(tmp_path, named, _NOW)
            verified = trust.verified(certificate)
            assert ({named} if named == issuer else set()) == verified
            everyone = Trust.parse(_pem(authorities, issuer))
            assert {named} == everyone.verified(certificate)
    front_end = authorities["shuffler"].issue(tmp_path, FRONT_END, _NOW)
    assert {FRONT_END} == trust.verified(front_end)
    with pytest.raises(SettingsError, match="no authority is trusted for the operator"):
        trust.roots("operator")


@pytest.mark.parametrize("common_name", ["analyzer", None])
def test_the_common_name_takes_precedence_over_alternative_names(common_name: str | None) -> None:
    """A host called shuffler is not the shuffler."""
    key, hosts = ec.generate_private_key(ec.SECP256R1()), ("shuffler", "localhost")
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(x509.Name(attributes))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, hosts)), critical=False)
        .sign(key, hashes.SHA256())
    )
    own = made.public_bytes(Encoding.PEM)

    expected = {common_name} if common_name else {*hosts}
    assert expected == Trust.parse(own).verified(Certificate.parse(own))


def test_a_revoked_certificate_is_refused(
    authorities: dict[str, Authority], tmp_path: Path
) -> None:
    """Another one of the same party is not."""
    old, new = (authorities["shuffler"].issue(tmp_path, "shuffler", _NOW) for _ in range(2))
    for raw in (_both(authorities), _pem(authorities, "shuffler")):
        trust = Trust.parse(raw + f"revoked: {old.fingerprint}\r\n".encode())
        with pytest.raises(CallerError, match=f"revoked: {old.fingerprint}"):
            trust.verified(old)
        assert {"shuffler"} == trust.verified(new)


@table(
    ("form", "message"),
    [
        (b"", "does not hold a certificate"),
        (b"revoked: %d\n" % (10**63), "does not hold a certificate"),
        (b"party: analyzer\n", "does not hold a certificate"),
        (b"[A][S]", "holds several authorities"),
        (b"[A]party: shuffler\n[S]", "holds several authorities"),
        (b"party: shuffler\n[S][A]", "holds several authorities"),
        (b"party: shuffler\n[S]party: shuffler\n[A]", "holds several authorities"),
        (b"party: shuffler\nparty: analyzer\n[A]", "a line other than"),
        (b"party: nobody\n[A]", "a line other than"),
        (b"party:\n[A]", "a line other than"),
        (b"[A]revoked: abc\n", "a line other than"),
        (b"[A]revoked:\n", "a line other than"),
    ],
)
def test_a_doubtful_file_is_refused(
    authorities: dict[str, Authority], form: bytes, message: str
) -> None:
    """Joined files would let one organization certify another's party."""
    raw = form.replace(b"[A]", _pem(authorities, "analyzer"))
    raw = raw.replace(b"[S]", _pem(authorities, "shuffler"))
    with pytest.raises(SettingsError, match=message):
        Trust.parse(raw)


def test_text_around_certificates_is_ignored(authorities: dict[str, Authority]) -> None:
    """Other tools write such text."""
    raw = b"Certificate:\n    Data:\n" + _pem(authorities, "analyzer") + b"# end\n"
    assert [authorities["analyzer"].certificate] == [*Trust.parse(raw).authorities.values()]
    assert Certificate.parse(raw) == authorities["analyzer"].certificate


@table(
    "line",
    [
        *(b" party: shuffler", b"Party: shuffler", b"party : shuffler", b"party shuffler"),
        *(b"\xef\xbb\xbfparty: shuffler", b" revoked: " + b"ab" * 32, b"Revoked: " + b"ab" * 32),
        b"-----BEGIN X509 CERTIFICATE-----",
    ],
)
def test_a_label_in_another_form_is_refused(authorities: dict[str, Authority], line: bytes) -> None:
    """Ignored, it would let one party's authority certify every party, or a revoked one stay."""
    pem = _pem(authorities, "shuffler")
    with pytest.raises(SettingsError, match="has a line other than"):
        Trust.parse(line + b"\n" + pem)
    with pytest.raises(SettingsError, match="has a line other than"):
        Trust.parse(pem.rstrip() + line)
    text = b"Issued for the third party:\n"
    assert Trust.parse(pem).to_bytes() == Trust.parse(text + pem).to_bytes()


def test_a_revocation_applies_at_the_next_call_whatever_else_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that was written while the service started; a damaged file is logged once."""
    tls = Tls.open(
        development_files(tmp_path, "shuffler", ManualClock()), "shuffler", ManualClock()
    )
    raw, trusted = (tmp_path / "shuffler.pem").read_bytes(), tmp_path / "authority.pem"
    good = trusted.read_bytes()
    trusted.write_bytes(good + b"revoked: " + Certificate.parse(raw).fingerprint.encode())
    callers = VerifiedCallers(tls)
    with pytest.raises(CallerError, match="is revoked"):
        callers.verified(raw)
    (tmp_path / "shuffler.key").unlink()
    trusted.write_bytes(good)
    assert {"shuffler"} == callers.verified(raw)
    trusted.unlink()
    for _ in range(2):
        assert {"shuffler"} == callers.verified(raw)
    assert ["TLS files not used"] == [each.getMessage() for each in caplog.records]
