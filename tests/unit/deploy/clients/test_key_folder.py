from pathlib import Path

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.certificates import FRONT_END, PARTIES, Certificate
from shuffledp.common.runtime.tls import Tls, TlsFiles, Trust, development_files
from shuffledp.deploy.clients.key_folder import KeyFolder
from tests.support.tables import table

_NOW = ManualClock().now()
_DAY = 86_400


def _shown(keys: KeyFolder) -> dict[str, Certificate]:
    return {party: certificate for party, (_, certificate) in keys.show().items()}


def test_each_party_gets_a_folder_that_its_settings_can_name(tmp_path: Path) -> None:
    """A folder has certificate, key of mode 0600, and authority; certificates name the hosts."""
    keys = KeyFolder(tmp_path / "keys")
    keys.make(PARTIES, ["a.example.org", "10.0.0.1"], _NOW)

    authorities = [f"authority of {party}" for party in PARTIES]
    assert [*authorities, *PARTIES] == [*keys.show()]
    trust = Trust.read(keys.path / "authority.pem")
    assert {*PARTIES} == {*trust.authorities}
    for party in PARTIES:
        folder = keys.path / party
        files = {path.name for path in folder.iterdir()}
        assert {f"{party}.pem", f"{party}.key", "authority.pem"} == files
        assert 0o600 == (folder / f"{party}.key").stat().st_mode & 0o777
        tls = Tls.open(TlsFiles.within(folder, party), party, ManualClock())
        assert trust.to_bytes() == tls.identity.authority
        assert 0o600 == (keys.path / "authorities" / f"{party}.key").stat().st_mode & 0o777
        certificate = _shown(keys)[party]
        assert {party} == trust.verified(certificate)
        assert {party, "a.example.org", "10.0.0.1"} <= set(_shown(keys)[party].names)


def test_renewing_keeps_authority_and_hosts_and_changes_the_rest(tmp_path: Path) -> None:
    """Both certificates are valid under the authority; none outlives it, or is renewed early."""
    keys = KeyFolder(tmp_path)
    keys.make(PARTIES, ["a.example.org"], _NOW)
    before = _shown(keys)
    assert [] == keys.renew(None, _NOW + 6.9 * _DAY)
    assert ["shuffler"] == keys.renew("shuffler", _NOW + 7 * _DAY, days=20)
    after = _shown(keys)

    old, new = before.pop("shuffler"), after.pop("shuffler")
    assert before == after
    assert old.names == new.names
    assert (14, 27) == (old.days_left(_NOW), new.days_left(_NOW))
    assert old.is_issued_by(after["authority of shuffler"])
    assert new.is_issued_by(after["authority of shuffler"])
    assert old.parsed.public_key() != new.parsed.public_key()
    assert {*PARTIES} == {*keys.renew(None, _NOW + 3640 * _DAY)}
    assert {3650} == {one.days_left(_NOW) for one in _shown(keys).values()}


def test_existing_certificates_and_authorities_are_kept(tmp_path: Path) -> None:
    """A second call adds a party under the same shared authority."""
    keys = KeyFolder(tmp_path)
    keys.make(["shuffler"], [], _NOW, shared=True)
    first = _shown(keys)
    with pytest.raises(SettingsError, match="shuffler already has a certificate"):
        keys.make(["shuffler", "analyzer"], [], _NOW, shared=True)
    with pytest.raises(SettingsError, match="has one shared authority"):
        keys.make(["analyzer"], [], _NOW)
    with pytest.raises(SettingsError, match="has the authority of the analyzer itself"):
        keys.trust("analyzer", tmp_path / "authority.pem")
    keys.make(["analyzer"], [], _NOW, shared=True)

    assert first.items() < _shown(keys).items()
    assert first["authority"] == Certificate.read(tmp_path / "analyzer" / "authority.pem")


def test_organizations_trust_each_others_authority_for_one_party(tmp_path: Path) -> None:
    """Each makes its own; a file that holds more is trusted for the named party alone."""
    one, two, device = (KeyFolder(tmp_path / name) for name in ("one", "two", "device"))
    one.make(["analyzer", "operator"], [], _NOW)
    two.make(["shuffler", FRONT_END], [], _NOW)
    theirs = two.path / "authorities" / "shuffler.pem"
    for folder, file in ((one, theirs), (device, two.path / "authority.pem")):
        assert Certificate.read(theirs) == folder.trust("shuffler", file)
    two.trust("analyzer", one.path / "authorities" / "analyzer.pem")

    files = (one.path / "analyzer", two.path / FRONT_END, device.path)
    trusted = [{*Trust.read(folder / "authority.pem").authorities} for folder in files]
    assert [{"analyzer", "shuffler", "operator"}, {"analyzer", "shuffler"}, {"shuffler"}] == trusted
    assert ["authority of shuffler"] == [*device.show()]
    with pytest.raises(SettingsError, match="has the authority of the shuffler, not of the issuer"):
        device.trust("issuer", theirs)
    trust = Trust.read(files[0] / "authority.pem")
    assert {FRONT_END} == trust.verified(_shown(two)[FRONT_END])
    for folder, party, file, message in (
        (one, "nobody", theirs, "unknown party: nobody"),
        (two, "shuffler", theirs, "has the authority of the shuffler itself"),
        (device, "issuer", two.path / "authority.pem", "has no authority of the issuer"),
    ):
        with pytest.raises(SettingsError, match=message):
            folder.trust(party, file)


def test_impossible_requests_are_refused(tmp_path: Path) -> None:
    """No certificate, no authority, unknown party, or a host with a party's name."""
    keys = KeyFolder(tmp_path)
    with pytest.raises(SettingsError, match="has no certificate; use"):
        keys.show()
    with pytest.raises(SettingsError, match="has no certificate for any party"):
        keys.renew(None, _NOW)
    with pytest.raises(SettingsError, match="has no valid certificate for shuffler"):
        keys.revoke("shuffler", _NOW)
    with pytest.raises(SettingsError, match="unknown party: nobody"):
        keys.make(["nobody"], [], _NOW)


@table("ending", ["", ".", ".."])
@table("host", ["shuffler", "Operator", "shuffler-front-end", "COORDINATOR"])
@table("party", ["analyzer", "shuffler-front-end", "worker"])
def test_no_host_has_the_name_of_a_party_or_role(
    tmp_path: Path, party: str, host: str, ending: str
) -> None:
    """Callers would take its certificate for the party's: they ignore case and a final dot."""
    with pytest.raises(SettingsError, match="must not have a party's name or a role's"):
        KeyFolder(tmp_path).make([party], ["example.org", host + ending], _NOW)


@table(
    "host",
    [
        *("shuffler:50051", "[::1]", "", ".", " ", "shuffler ", "shuffler\n", "shuffler\0", "*"),
        *("*.", "*.shuffler", ".shuffler", "a..b", "http://a", "10.0.0.0/8", "a,b", "münchen.de"),
        "a" * 64,
    ],
)
def test_a_host_that_no_caller_could_name_is_refused(tmp_path: Path, host: str) -> None:
    """Its certificate would be of no use, or match more than the host."""
    with pytest.raises(SettingsError, match="without port and brackets"):
        KeyFolder(tmp_path).make(["analyzer"], [host], _NOW)


@pytest.mark.parametrize("host", ["*.example.org", "::1", "front_end", "xn--mnchen-3ya.de", "A.b"])
def test_a_host_in_any_usual_form_is_certified(tmp_path: Path, host: str) -> None:
    """Wildcards of a domain, IPv6, underscores as in containers, encoded names, any case."""
    keys = KeyFolder(tmp_path)
    keys.make(["analyzer"], [host], _NOW)

    assert host in keys.show()["analyzer"][1].names


def test_a_host_is_certified_without_its_final_dot(tmp_path: Path) -> None:
    """TLS compares names so."""
    keys = KeyFolder(tmp_path)
    keys.make(["analyzer"], ["analyzer.example.org.", "10.0.0.1"], _NOW)

    assert {"analyzer.example.org", "10.0.0.1"} < set(keys.show()["analyzer"][1].names)


def test_a_development_folder_is_shown_and_renewed_too(tmp_path: Path) -> None:
    """A development folder holds all certificates together."""
    development_files(tmp_path, "analyzer", ManualClock())
    keys = KeyFolder(tmp_path)
    path, before = keys.show()["analyzer"]
    keys.renew("analyzer", _NOW, force=True)

    assert path == tmp_path / "analyzer.pem"
    assert before != keys.show()["analyzer"][1]


def test_parties_and_roles_have_different_authorities(tmp_path: Path) -> None:
    """Anyone with a role's certificate can run code in an engine, so no party may."""
    keys = KeyFolder(tmp_path)
    keys.make(["coordinator", "worker"], [], _NOW)

    assert ["authority", "coordinator", "worker"] == [*keys.show()]
    for names in (["analyzer"], ["scheduler", "shuffler"]):
        with pytest.raises(SettingsError, match="one authority must not certify parties and roles"):
            keys.make(names, [], _NOW)


def test_revoking_covers_every_valid_certificate_of_a_party(tmp_path: Path) -> None:
    """Renewed ones are in the list too; ended ones, and other parties', are not."""
    keys = KeyFolder(tmp_path)
    keys.make(["shuffler", "analyzer"], [], _NOW)
    certificates = [_shown(keys)["shuffler"]]
    for day in (8, 16):
        assert {"shuffler", "analyzer"} == {*keys.renew(None, _NOW + day * _DAY)}
        certificates.append(_shown(keys)["shuffler"])
    now = _NOW + 16 * _DAY
    revoked = keys.revoke("shuffler", now)

    expected = [(one.fingerprint, "shuffler", one.end.isoformat()) for one in certificates[1:]]
    assert expected == [tuple(one) for one in revoked]
    for party in ("shuffler", "analyzer"):
        trust = Trust.read(tmp_path / party / "authority.pem")
        assert {one.fingerprint for one in certificates[1:]} == trust.revoked


def test_a_revoked_certificate_is_never_renewed(tmp_path: Path) -> None:
    """A new one is made on purpose, and renewed again; other folders learn fingerprints."""
    keys, other = KeyFolder(tmp_path / "one"), KeyFolder(tmp_path / "other")
    for folder in (keys, other):
        folder.make(["shuffler", "analyzer"], [], _NOW)
    [revoked] = keys.revoke("shuffler", _NOW)
    later = _NOW + 10 * _DAY

    assert ["analyzer"] == keys.renew(None, later, force=True)
    with pytest.raises(SettingsError, match="the certificate of the shuffler is revoked"):
        keys.renew("shuffler", later, force=True)
    keys.make(["shuffler"], [], later)
    assert ["shuffler"] == keys.renew("shuffler", later, force=True)
    [told] = other.revoke(revoked.fingerprint, _NOW)
    assert (revoked.fingerprint, "-", "-") == told
    assert {revoked.fingerprint} == Trust.read(other.path / "analyzer" / "authority.pem").revoked
    assert ["shuffler"] == other.renew("shuffler", later)


def test_a_damaged_list_is_refused(tmp_path: Path) -> None:
    """An unread revocation would renew a stolen certificate."""
    keys = KeyFolder(tmp_path)
    keys.make(["shuffler"], [], _NOW)
    [one] = keys.revoke("shuffler", _NOW)
    (tmp_path / "revoked.txt").write_text(f"{' '.join(one)}\n{one.fingerprint} shuffler\n")
    with pytest.raises(SettingsError, match=r"line 2 of revoked\.txt is not"):
        keys.renew(None, _NOW, force=True)
