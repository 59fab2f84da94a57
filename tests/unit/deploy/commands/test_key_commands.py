"""`shuffledp keys`, as an operator types it."""

import json
import time
from pathlib import Path

import pytest

from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.confirmed_clock import ConfirmedClock
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.transparency.checkpoint import NoteKey
from shuffledp.deploy.clients.key_folder import KeyFolder
from tests.support.command_line import shown, shown_json
from tests.support.machines import Machine


def test_keys_are_made_renewed_and_shown(tmp_path: Path) -> None:
    """The output is JSON or a table, with the analyzer's signing identity on request."""
    keys, identity = str(tmp_path / "keys"), tmp_path / "identity.pub"
    identity.write_text(SigningIdentity.generate().public_identity().raw.hex(), encoding="ascii")
    made = shown_json("keys make", keys, "--host", "a.example.org")
    early = shown_json("keys renew", keys)
    renewed = shown_json("keys renew", keys, "shuffler", "--force")
    listed = shown_json("keys show", keys, "--identity", str(identity))

    parties = ["analyzer", "shuffler", "issuer", "user_agent", "operator"]
    assert [*(f"authority of {party}" for party in parties), *parties] == [
        one["party"] for one in made["certificates"]
    ]
    assert (made["certificates"], []) == (early["certificates"], early["renewed"])
    assert ["shuffler"] == renewed["renewed"]
    assert made["certificates"] != renewed["certificates"]
    assert renewed["certificates"] == listed["certificates"]
    assert len(listed["signing_identity"]) == 16
    assert listed["signing_identity"] in shown("keys show", keys, "--identity", str(identity))


@pytest.mark.parametrize(("age", "soon"), [(8, []), (10, ["analyzer"]), (15, ["analyzer"])])
def test_certificates_that_end_soon_are_pointed_out(
    tmp_path: Path, age: int, soon: list[str]
) -> None:
    """Certificates last 14 days; those with less than 5 days left are pointed out."""
    KeyFolder(tmp_path).make(["analyzer"], [], time.time() - 86_400 * age)
    listed = shown_json("keys show", str(tmp_path))["certificates"]

    assert soon == [one["party"] for one in listed if one["ends_soon"]]
    text = shown("keys show", str(tmp_path))
    assert (soon != []) == ("which expire soon: analyzer." in text)
    assert (age > 14) == ("ended" in text)


def test_another_organizations_authority_is_trusted(tmp_path: Path) -> None:
    """The printed SHA-256 is to be compared; --shared makes one authority for all."""
    theirs, keys = tmp_path / "theirs", str(tmp_path / "keys")
    made = shown_json("keys make", str(theirs), "--party", "shuffler")
    printed = shown("keys trust", keys, "shuffler", str(theirs / "authorities" / "shuffler.pem"))
    shared = shown_json("keys make", str(tmp_path / "shared"), "--shared")

    assert f"Trusted for the shuffler: {made['certificates'][0]['sha256']}" in printed
    assert "authority" == shared["certificates"][0]["party"]


def test_a_revocation_says_until_when_the_certificates_are_valid(tmp_path: Path) -> None:
    """The command and `keys show` print it; the file of trust has it for servers."""
    keys, made = str(tmp_path), KeyFolder(tmp_path)
    made.make(["analyzer", "shuffler"], [], time.time())
    certificate = made.show()["shuffler"][1]
    printed = shown("keys revoke", keys, "shuffler")
    listed = shown_json("keys show", keys)["certificates"]

    assert f"valid until {certificate.end.isoformat()}: shuffler" in printed
    assert "13, revoked" in printed
    assert ["shuffler"] == [one["party"] for one in listed if one["revoked"]]
    line = f"revoked: {certificate.fingerprint}\n"
    assert line in (tmp_path / "analyzer" / "authority.pem").read_text(encoding="ascii")


def test_an_identity_is_made_before_the_first_start_and_renewed(tmp_path: Path) -> None:
    """The service starts with it; it is renewed only while no process holds the state."""
    state = tmp_path / "state"
    first = shown_json("keys identity", str(state))
    again = shown_json("keys identity", str(state))
    assert first == again
    assert first["identity"] == (state / "identity.pub").read_text(encoding="ascii")
    assert first["identity"] in shown("keys identity", str(state))
    schedule = AnalyzerSettings(state_directory=state, plaintext=True).schedule()
    loaded = AnalyzerKeys.load(StateDirectory.open(state), schedule, 0.0)
    assert first["identity"] == loaded.identity.public_identity().raw.hex()

    with (
        StateDirectory.open(state).held(),
        pytest.raises(SettingsError, match="in use by another process"),
    ):
        shown("keys identity", str(state), "--renew")
    renewed = shown_json("keys identity", str(state), "--renew")
    assert first != renewed
    assert renewed["identity"] == (state / "identity.pub").read_text(encoding="ascii")


def test_the_key_of_a_witness_is_made_before_the_first_start(tmp_path: Path) -> None:
    """It is the same each time, and names the party; the identity is another key."""
    command = ("keys identity", str(tmp_path / "state"))
    key = NoteKey.parse(shown(*command, "--witness", "shuffler").strip())
    again = shown_json(*command, "--witness", "shuffler")

    assert key.to_text() == again["witness"] == (tmp_path / "state" / "witness.pub").read_text()
    assert key.name.startswith("shuffler/")
    assert key.identity.raw.hex() != shown_json(*command)["identity"]


def test_an_operator_confirms_a_services_clock(tmp_path: Path) -> None:
    """The command prints the time that it confirms; another folder than a service's is refused."""
    state = StateDirectory.open(tmp_path / "state")
    ConfirmedClock(state, Machine())
    printed = shown("keys confirm-clock", str(state.path))

    assert printed.startswith("Confirmed: 20")
    assert json.loads((state.path / "clock.json").read_text())["wall"] == pytest.approx(
        time.time(), abs=60
    )
    with pytest.raises(SettingsError, match="it is not a service's state directory"):
        shown("keys confirm-clock", str(tmp_path))


def test_a_person_confirms_a_restore_while_the_device_is_stopped(tmp_path: Path) -> None:
    """A running one has compared its files already."""
    state = StateDirectory.open(tmp_path / "state")
    with state.held(), pytest.raises(SettingsError, match="in use by another process"):
        shown("keys confirm-restore", str(state.path))

    assert not list(state.path.glob("restore-*"))
    assert "Start the service." in shown("keys confirm-restore", str(state.path))
    assert ["restore-confirmed"] == [path.name for path in state.path.glob("restore-*")]
