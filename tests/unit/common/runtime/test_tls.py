import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime import tls


def _identity(directory: Path, party: str, clock: ManualClock) -> tls.TlsIdentity:
    return tls.development_files(directory, party, clock).read()


@pytest.fixture
def files(tmp_path: Path) -> tls.TlsFiles:
    """Return the analyzer's files."""
    return tls.development_files(tmp_path, "analyzer", ManualClock())


def test_development_certificates_share_one_authority_and_name_their_party(tmp_path: Path) -> None:
    """They are created once, their keys are private, and none can issue another."""
    clock = ManualClock()
    shuffler, analyzer = (_identity(tmp_path, party, clock) for party in ("shuffler", "analyzer"))
    own, root = map(x509.load_pem_x509_certificate, (analyzer.certificate, analyzer.authority))
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert shuffler.authority == analyzer.authority
    assert shuffler.key != analyzer.key
    assert shuffler.certificate == _identity(tmp_path, "shuffler", clock).certificate
    assert {0o600} == {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.key")}
    assert "analyzer" in names.get_values_for_type(x509.DNSName)
    assert "shuffler" not in names.get_values_for_type(x509.DNSName)
    own.verify_directly_issued_by(root)
    basic = own.extensions.get_extension_for_class(x509.BasicConstraints).value
    usage = own.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (False, False) == (basic.ca, usage.key_cert_sign)
    constraints = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (True, 0) == (constraints.ca, constraints.path_length)


_UNKNOWN_KEY = base64.b64encode(bytes.fromhex("301302010030070605 2a030405060405 0000000000"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("analyzer.key", b"", r"analyzer\.key is not the key of .*analyzer\.pem"),
        (
            "analyzer.key",
            b"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n" % _UNKNOWN_KEY,
            r"analyzer\.key is not the key of .*analyzer\.pem",
        ),
        ("authority.pem", b"", r"authority\.pem does not hold a certificate"),
    ],
)
def test_a_wrong_file_stops_the_start(
    files: tls.TlsFiles, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    """An empty authority would refuse every client without an error."""
    (tmp_path / name).write_bytes(content)

    with pytest.raises(SettingsError, match=message):
        files.read()


def test_an_ended_or_damaged_authority_issues_no_certificate(tmp_path: Path) -> None:
    """The message names the date, or that this program did not create the key."""
    tls.development_files(tmp_path, "shuffler", ManualClock())
    later = ManualClock(ManualClock().seconds + 4000 * 86_400)
    with pytest.raises(SettingsError, match="authority's certificate expired on 2011-09-07"):
        tls.development_files(tmp_path, "analyzer", later)
    for content in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"):
        (tmp_path / "authority.key").write_bytes(content)
        with pytest.raises(SettingsError, match="does not hold a key that this program created"):
            tls.development_files(tmp_path, "analyzer", ManualClock())


def test_an_ended_or_foreign_certificate_stops_the_start(files: tls.TlsFiles) -> None:
    """The message says how to renew it, or which party it must name."""
    later = ManualClock(ManualClock().seconds + 400 * 86_400)

    with pytest.raises(SettingsError, match=r"expired on 2002-09-09.*shuffledp keys renew"):
        tls.Tls.open(files, "analyzer", later)
    with pytest.raises(SettingsError, match="names analyzer; it must name shuffler"):
        tls.Tls.open(files, "shuffler", ManualClock())
    assert tls.Tls.open(files, "analyzer", ManualClock()).identity.authority


def test_a_development_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    """The same authority renews it within its last days."""
    first = _identity(tmp_path, "analyzer", ManualClock())
    later = ManualClock(ManualClock().seconds + 361 * 86_400)
    second = _identity(tmp_path, "analyzer", later)

    assert first.authority == second.authority
    assert first.certificate != second.certificate
    assert second == _identity(tmp_path, "analyzer", later)


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("a003020102", "a003020105"),  # an unknown version
        ("2a8648ce3d030107", "2a8648ce3d03017f"),  # an unknown curve
        ("82096c6f63616c686f7374", "8209ff6f63616c686f7374"),  # a name that is not ASCII
    ],
)
def test_a_damaged_certificate_is_refused_when_it_is_read(
    files: tls.TlsFiles, tmp_path: Path, whole: str, broken: str
) -> None:
    """The error comes when it is read, and not later from the library."""
    certificate = x509.load_pem_x509_certificate((tmp_path / "analyzer.pem").read_bytes())
    der = certificate.public_bytes(Encoding.DER).replace(
        bytes.fromhex(whole), bytes.fromhex(broken)
    )
    body = base64.encodebytes(der).decode()
    (tmp_path / "analyzer.pem").write_text(
        f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
    )

    with pytest.raises(SettingsError, match="does not hold a certificate in PEM"):
        tls.Tls.open(files, "analyzer", ManualClock())


def test_a_coordinator_makes_certificates_only_where_its_authoritys_key_is(tmp_path: Path) -> None:
    """Where an operator made them, the directory stays as it is: it may be read-only."""
    made, given, clock = tmp_path / "made", tmp_path / "given", ManualClock()
    tls.internal_tls(made, "coordinator", clock)
    given.mkdir()
    for name in ("authority.pem", "coordinator.pem", "coordinator.key"):
        (given / name).write_bytes((made / name).read_bytes())
    (given / "coordinator.key").chmod(0o600)
    names = {path.name for path in given.iterdir()}

    assert {"front-end.pem", "worker.key", "scheduler.pem"} <= {p.name for p in made.iterdir()}
    opened = tls.internal_tls(given, "coordinator", clock)
    assert (made / "coordinator.pem").read_bytes() == opened.identity.certificate
    assert names == {path.name for path in given.iterdir()}


@pytest.mark.parametrize("missing", ["authority.pem", "authority.key"])
@pytest.mark.parametrize("dangling", [False, True])
def test_half_an_authority_is_not_replaced(tmp_path: Path, missing: str, *, dangling: bool) -> None:
    """All trust the old one; the operator puts the other half back."""
    tls.development_files(tmp_path, "analyzer", ManualClock())
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name != missing}
    (tmp_path / missing).unlink()
    if dangling:
        (tmp_path / missing).symlink_to(tmp_path / "not mounted")

    with pytest.raises(SettingsError, match=r"has only one of|cannot be read"):
        tls.development_files(tmp_path, "shuffler", ManualClock())
    assert kept == {name: (tmp_path / name).read_bytes() for name in kept}


def test_a_certificate_replaces_no_link(tmp_path: Path) -> None:
    """As where a secret is not mounted."""
    for name in ("analyzer.pem", "analyzer.key"):
        (tmp_path / name).symlink_to(tmp_path / "not mounted")

    with pytest.raises(SettingsError, match="is a link"):
        tls.development_files(tmp_path, "analyzer", ManualClock())
    assert (tmp_path / "analyzer.key").is_symlink()
