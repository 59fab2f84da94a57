import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from common.errors import SettingsError
from common.runtime.tls import Tls, TlsFiles, TlsIdentity, development_files
from deploy.audit.harness.clock import ManualClock


def _identity(directory: Path, party: str, clock: ManualClock) -> TlsIdentity:
    return development_files(directory, party, clock).read()


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """The analyzer's."""
    return development_files(tmp_path, "analyzer", ManualClock())


def test_parties_share_an_authority_and_nothing_else(tmp_path: Path) -> None:
    """Made on first start, kept afterwards, keys closed to others."""
    clock = ManualClock()
    shuffler = _identity(tmp_path, "shuffler", clock)
    analyzer = _identity(tmp_path, "analyzer", clock)

    assert shuffler.authority == analyzer.authority
    assert shuffler.key != analyzer.key
    assert shuffler.certificate == _identity(tmp_path, "shuffler", clock).certificate
    for file in tmp_path.glob("*.key"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_certificate_names_its_party(tmp_path: Path) -> None:
    """So that a caller can tell the analyzer from the shuffler."""
    identity = _identity(tmp_path, "analyzer", ManualClock())
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert "analyzer" in names.get_values_for_type(x509.DNSName)
    assert "shuffler" not in names.get_values_for_type(x509.DNSName)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(identity.authority))


def test_nobody_whom_an_authority_certified_certifies_others(tmp_path: Path) -> None:
    """A party whose certificate could issue others could call itself by another's name."""
    identity = _identity(tmp_path, "shuffler", ManualClock())
    own, root = map(x509.load_pem_x509_certificate, (identity.certificate, identity.authority))
    basic = own.extensions.get_extension_for_class(x509.BasicConstraints).value
    usage = own.extensions.get_extension_for_class(x509.KeyUsage).value

    assert (False, False) == (basic.ca, usage.key_cert_sign)
    constraints = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (True, 0) == (constraints.ca, constraints.path_length)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_an_authoritys_key_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    """Somebody put another file in its place; the service says so and does not start."""
    development_files(tmp_path, "shuffler", ManualClock())
    (tmp_path / "authority.key").write_bytes(content)

    with pytest.raises(SettingsError, match="authority's key is not one made here"):
        development_files(tmp_path, "analyzer", ManualClock())


def test_an_ended_certificate_stops_the_start(files: TlsFiles) -> None:
    """With a sentence that says what to do; one that names another party does too."""
    later = ManualClock(ManualClock().seconds + 400 * 86_400)

    with pytest.raises(SettingsError, match=r"ended on 2002-09-09.*shuffledp keys renew"):
        Tls.open(files, "analyzer", later)
    with pytest.raises(SettingsError, match="names analyzer; others expect one that names shuf"):
        Tls.open(files, "shuffler", ManualClock())
    assert Tls.open(files, "analyzer", ManualClock()).authority


def test_a_development_certificate_is_made_anew_before_it_ends(tmp_path: Path) -> None:
    """Within its last month; others of the same authority still take it."""
    first = _identity(tmp_path, "analyzer", ManualClock())
    later = ManualClock(ManualClock().seconds + 350 * 86_400)
    second = _identity(tmp_path, "analyzer", later)

    assert first.authority == second.authority
    assert first.certificate != second.certificate
    assert second == _identity(tmp_path, "analyzer", later)


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("a003020102", "a003020105"),  # a version that there is not
        ("2a8648ce3d030107", "2a8648ce3d03017f"),  # a curve that nobody knows
        ("82096c6f63616c686f7374", "8209ff6f63616c686f7374"),  # a name that is no text
    ],
)
def test_a_damaged_certificate_is_refused_when_it_is_read(
    files: TlsFiles, tmp_path: Path, whole: str, broken: str
) -> None:
    """Not later, when one of its fields is looked at: that would be no error of ours."""
    certificate = x509.load_pem_x509_certificate((tmp_path / "analyzer.pem").read_bytes())
    der = certificate.public_bytes(Encoding.DER).replace(
        bytes.fromhex(whole), bytes.fromhex(broken)
    )
    body = base64.encodebytes(der).decode()
    (tmp_path / "analyzer.pem").write_text(
        f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
    )

    with pytest.raises(SettingsError, match="does not hold a certificate in PEM"):
        Tls.open(files, "analyzer", ManualClock())


def test_a_key_of_an_unknown_kind_is_not_the_certificates(files: TlsFiles, tmp_path: Path) -> None:
    """One that the library does not know is refused as any other wrong key is."""
    unknown = base64.b64encode(bytes.fromhex("301302010030070605 2a030405060405 0000000000"))
    (tmp_path / "analyzer.key").write_bytes(
        b"-----BEGIN PRIVATE KEY-----\n" + unknown + b"\n-----END PRIVATE KEY-----\n"
    )

    with pytest.raises(SettingsError, match="tls_key is not the key of tls_certificate"):
        files.read()


@pytest.mark.parametrize("content", [b"", b"no certificate"])
def test_an_authority_that_is_none_stops_the_start(files: TlsFiles, content: bytes) -> None:
    """Trusting nobody, a server would shut everybody out without a word."""
    files.authority.write_bytes(content)

    with pytest.raises(SettingsError, match=r"authority\.pem does not hold a certificate"):
        files.read()


def test_an_ended_authority_issues_no_more(tmp_path: Path) -> None:
    """With a sentence; a certificate that ends before it begins cannot be made."""
    development_files(tmp_path, "shuffler", ManualClock())
    later = ManualClock(ManualClock().seconds + 4000 * 86_400)

    with pytest.raises(SettingsError, match="authority's certificate ended on 2011-09-07"):
        development_files(tmp_path, "analyzer", later)
