import dataclasses
from pathlib import Path

import pytest

from common.errors import SettingsError
from common.runtime.certificates import PARTIES, Certificate
from common.runtime.tls import Tls, TlsFiles, development_files
from deploy.audit.harness.clock import ManualClock
from deploy.clients.key_folder import KeyFolder, Shown

_NOW = ManualClock().now()
_DAY = 86_400


def test_each_party_gets_a_folder_that_its_settings_can_name(tmp_path: Path) -> None:
    """Certificate, key with mode 0600, and the authority; each names its party and the hosts."""
    shown = KeyFolder(tmp_path / "keys").make(PARTIES, ["a.example.org", "10.0.0.1"], _NOW)

    assert ["authority", *PARTIES] == [one.party for one in shown]
    for party in PARTIES:
        folder = tmp_path / "keys" / party
        assert {f"{party}.pem", f"{party}.key", "authority.pem"} == {
            path.name for path in folder.iterdir()
        }
        assert (folder / f"{party}.key").stat().st_mode & 0o777 == 0o600
        assert Tls.open(TlsFiles.within(folder, party), party, ManualClock()).authority
        assert {party, "a.example.org", "10.0.0.1"} <= set(
            Certificate.read(folder / f"{party}.pem").names
        )
    assert (tmp_path / "keys" / "authority.key").stat().st_mode & 0o777 == 0o600


def test_renewing_keeps_authority_and_hosts_and_changes_the_rest(tmp_path: Path) -> None:
    """One party, or all; old and new are of one authority, so that both are taken."""
    keys = KeyFolder(tmp_path)
    before = {one.party: one for one in keys.make(PARTIES, ["a.example.org"], _NOW)}
    old = Certificate.read(tmp_path / "shuffler" / "shuffler.pem")
    after = {one.party: one for one in keys.renew("shuffler", _NOW + 300 * _DAY)}
    new = Certificate.read(tmp_path / "shuffler" / "shuffler.pem")
    authority = Certificate.read(tmp_path / "authority.pem").parsed

    assert before["authority"] == _later(after["authority"], 300)
    assert before["analyzer"] == _later(after["analyzer"], 300)
    assert before["shuffler"].fingerprint != after["shuffler"].fingerprint
    assert old.names == new.names
    assert (365, 65) == (after["shuffler"].days_left, old.days_left(_NOW + 300 * _DAY))
    for certificate in (old, new):
        certificate.parsed.verify_directly_issued_by(authority)
    assert old.parsed.public_key() != new.parsed.public_key()


def _later(shown: Shown, days: int) -> Shown:
    return dataclasses.replace(shown, days_left=shown.days_left + days)


def test_certificates_that_end_soon_are_pointed_out(tmp_path: Path) -> None:
    """From 30 days on; none lives longer than its authority."""
    keys = KeyFolder(tmp_path)
    keys.make(["shuffler"], [], _NOW)
    [_, fine] = keys.show(_NOW + 335 * _DAY)
    [_, soon] = keys.show(_NOW + 336 * _DAY)
    [authority, last] = keys.renew(None, _NOW + 3600 * _DAY)

    assert (30, False) == (fine.days_left, fine.ends_soon)
    assert (29, True) == (soon.days_left, soon.ends_soon)
    assert authority.days_left == last.days_left == 50


def test_existing_certificates_and_authorities_are_kept(tmp_path: Path) -> None:
    """A second call adds a party under the same authority."""
    keys = KeyFolder(tmp_path)
    keys.make(["shuffler"], [], _NOW)
    first = (tmp_path / "authority.pem").read_bytes()
    with pytest.raises(SettingsError, match="shuffler has a certificate already"):
        keys.make(["shuffler", "analyzer"], [], _NOW)
    keys.make(["analyzer"], [], _NOW)

    assert first == (tmp_path / "authority.pem").read_bytes()
    assert first == (tmp_path / "analyzer" / "authority.pem").read_bytes()


def test_requests_that_cannot_be_met_are_refused(tmp_path: Path) -> None:
    """No certificate, no authority, no such party, or a host with a party's name."""
    with pytest.raises(SettingsError, match="no certificate in"):
        KeyFolder(tmp_path).show(_NOW)
    with pytest.raises(SettingsError, match=r"authority.pem cannot be read"):
        KeyFolder(tmp_path).renew(None, _NOW)
    with pytest.raises(SettingsError, match="nobody is no party"):
        KeyFolder(tmp_path).make(["nobody"], [], _NOW)
    for host in ("shuffler", "operator"):
        with pytest.raises(SettingsError, match="the names of parties"):
            KeyFolder(tmp_path).make(["analyzer"], [host], _NOW)


def test_a_development_folder_is_shown_and_renewed_too(tmp_path: Path) -> None:
    """One kind of certificate, made by one file."""
    development_files(tmp_path, "analyzer", ManualClock())
    [_, before] = KeyFolder(tmp_path).show(_NOW)
    [_, after] = KeyFolder(tmp_path).renew("analyzer", _NOW)

    assert before.path == after.path == tmp_path / "analyzer.pem"
    assert before.fingerprint != after.fingerprint
