"""Preparation before the first start of containers."""

import stat
from pathlib import Path

import pytest

from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.certificates import FRONT_END, RELAY, Certificate
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.key_store import load_identity
from shuffledp.common.runtime.settings import KeyHolderSettings
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import TlsFiles, Trust
from shuffledp.common.runtime.witness_service import WitnessServicer, load_witness_key
from shuffledp.common.transparency.checkpoint import NoteKey, SignatureType
from shuffledp.deploy.clients.key_folder import KeyFolder
from shuffledp.deploy.docker import preparation
from shuffledp.issuer.entitlements import PeopleList
from shuffledp.user_agent.credentials import CredentialFile

_NOW = SystemClock().now()


def _prepare(folder: Path, now: float = _NOW, *, two: bool = True) -> tuple[Path, Path]:
    """Do what `make up` does, in order; return the folders of secrets and of states."""
    secrets, states = folder / "secrets", folder / "states"
    secrets.mkdir(exist_ok=True)
    preparation.prepare_certificates(secrets, now, internal=True, two_shufflers=two)
    preparation.prepare_people(secrets)
    for party in preparation.PARTIES:
        witness = party if party in preparation.WITNESSES else None
        preparation.prepare_party(secrets / party, states / party, witness)
    return secrets, states


@pytest.mark.parametrize("party", preparation.PARTIES)
def test_a_party_starts_with_what_was_prepared(tmp_path: Path, party: str) -> None:
    """Certificate and key belong together, its state opens under its key, its token is known."""
    secrets, states = _prepare(tmp_path)

    own = secrets / party
    files = TlsFiles(
        certificate=own / f"{party}.pem",
        key=own / f"{party}.key",
        authority=secrets / "authority.pem",
    )
    files.check(party, _NOW)
    files.read()
    state = StateDirectory.open(states / party, own / "state.key")
    schedule = KeyHolderSettings(state_directory=state.path, plaintext=True).schedule()
    keys = AnalyzerKeys.load(state, schedule, _NOW)
    pinned = (own / "identity.pub").read_text(encoding="ascii")
    assert pinned == keys.identity.public_identity().raw.hex()
    token = (own / "operator.token").read_text(encoding="ascii")
    keys.operator_token.check(token)


@pytest.mark.parametrize("party", preparation.WITNESSES)
def test_a_witness_has_the_key_that_was_copied(tmp_path: Path, party: str) -> None:
    """The service opens it, and has cosigned nothing yet; the analyzer gets none."""
    secrets, states = _prepare(tmp_path)

    pinned = NoteKey.parse((secrets / party / "witness.pub").read_text(encoding="ascii"))
    state = StateDirectory.open(states / party, secrets / party / "state.key")
    assert pinned == load_witness_key(state, party)[1]
    assert (party, SignatureType.COSIGNATURE) == (pinned.name.partition("/")[0], pinned.type)
    analyzer = load_identity(
        StateDirectory.open(states / "analyzer", secrets / "analyzer" / "state.key")
    )
    WitnessServicer(state, analyzer.public_identity(), party, SystemClock())
    assert not (secrets / "analyzer" / "witness.pub").exists()


@pytest.mark.parametrize("party", preparation.ROLES)
def test_a_partys_processes_have_an_authority_of_their_own(tmp_path: Path, party: str) -> None:
    """Each role has a folder with its certificate, without the key of the internal authority."""
    secrets, _ = _prepare(tmp_path)

    authorities = {one: secrets / one / "internal" / "authority.pem" for one in preparation.ROLES}
    issuers = {one: Certificate.read(path) for one, path in authorities.items()}
    issuers["parties"] = Certificate.read(secrets / "authorities" / f"{party}.pem")
    for role in preparation.ROLES[party]:
        folder = secrets / party / "internal" / role
        names = {path.name for path in folder.iterdir()}
        assert {"authority.pem", f"{role}.pem", f"{role}.key"} == names
        files = TlsFiles.within(folder, role)
        files.check(role, _NOW)
        assert authorities[party].read_bytes() == files.read().authority
        own = Certificate.read(folder / f"{role}.pem")
        assert [party] == [name for name, issuer in issuers.items() if own.is_issued_by(issuer)]


def test_front_ends_have_a_certificate_that_serves_as_the_shufflers(tmp_path: Path) -> None:
    """Its first name, which a caller is known by, is another; renewing it keeps both."""
    secrets, _ = _prepare(tmp_path)
    assert [FRONT_END] == KeyFolder(secrets).renew(FRONT_END, _NOW, force=True)

    own = secrets / FRONT_END
    certificate = Certificate.read(own / f"{FRONT_END}.pem")
    assert [FRONT_END, "shuffler", "localhost", "127.0.0.1"] == certificate.names
    assert FRONT_END == certificate.name
    TlsFiles.within(own, FRONT_END).check(FRONT_END, _NOW)


def test_both_sides_of_two_shufflers_certify_their_own_parties_alone(tmp_path: Path) -> None:
    """Each trusts the other for the parties that it meets, and holds no key of its authorities."""
    secrets, _ = _prepare(tmp_path)

    second = secrets / preparation.SECOND
    own, theirs = (Trust.read(folder / "authority.pem") for folder in (secrets, second))
    relay = Certificate.read(second / RELAY / f"{RELAY}.pem")
    assert {RELAY, "operator", "analyzer", "shuffler"} == theirs.authorities.keys()
    assert {RELAY} == own.verified(relay) == theirs.verified(relay)
    keys = {path.name for path in (second / "authorities").glob("*.key")}
    assert {f"{RELAY}.key", "operator.key"} == keys
    assert not (secrets / "authorities" / f"{RELAY}.key").exists()
    operator = Certificate.read(second / "operator" / "operator.pem")
    assert {"operator"} == theirs.verified(operator)
    assert "operator" not in own.verified(operator)
    for party in ("analyzer", "shuffler"):
        assert own.authority(party) == theirs.authority(party)
        assert {party} == theirs.verified(Certificate.read(secrets / party / f"{party}.pem"))


def test_earlier_secrets_keep_their_shared_authority(tmp_path: Path) -> None:
    """Replacing it would need every party to start again at once."""
    secrets = tmp_path / "secrets"
    KeyFolder(secrets).make(["analyzer"], [], _NOW, shared=True)
    before = (secrets / "authority.pem").read_bytes()
    _prepare(tmp_path, two=False)

    assert before == (secrets / "shuffler" / "authority.pem").read_bytes()
    with pytest.raises(SettingsError, match="has the authority of the relay itself"):
        _prepare(tmp_path)


def test_preparing_again_changes_nothing(tmp_path: Path) -> None:
    """Pinned identities and copied certificates stay valid."""
    secrets, _ = _prepare(tmp_path)
    files = {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()}
    _prepare(tmp_path, _NOW + 86400)

    assert files == {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()}


async def test_each_container_has_the_credentials_of_its_own_people(tmp_path: Path) -> None:
    """The issuer's list has them all, as hashes."""
    secrets, _ = _prepare(tmp_path)
    listed = PeopleList(secrets / "issuer" / "people.txt")
    raw = (secrets / "issuer" / "people.txt").read_text(encoding="ascii")
    for holder, names in preparation.PEOPLE.items():
        credentials = CredentialFile(secrets / holder / "credentials.txt").all()
        assert [*names] == [await listed.person(one) for one in credentials]
        assert not any(one.hex() in raw for one in credentials)


def test_certificates_are_renewed_where_their_authority_is(tmp_path: Path) -> None:
    """Those of parties and of roles; nothing else changes, nor any without the authority's key."""
    secrets, _ = _prepare(tmp_path)
    (secrets / "analyzer" / "internal" / "authority.key").unlink()
    files = {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()}
    _prepare(tmp_path, _NOW + 8 * 86400)
    changed = {str(p.relative_to(secrets)) for p, raw in files.items() if p.read_bytes() != raw}

    names = {"issued.txt", "shuffler/internal/issued.txt", f"{preparation.SECOND}/issued.txt"}
    for folder, parties in {
        "": (*preparation.PARTIES, "operator", FRONT_END),
        "shuffler/internal/": preparation.ROLES["shuffler"],
        f"{preparation.SECOND}/": (RELAY, "operator"),
    }.items():
        names |= {f"{folder}{party}/{party}.{end}" for party in parties for end in ("pem", "key")}
    assert names == changed


def test_what_is_secret_is_its_owners_alone(tmp_path: Path) -> None:
    """Others can pass through a folder to a file whose name they know, but not list it."""
    secrets, _ = _prepare(tmp_path)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [secrets, *secrets.rglob("*")]}
    secret = {path for path in modes if path.suffix in {".key", ".token"}}
    assert 19 + sum(1 + len(roles) for roles in preparation.ROLES.values()) == len(secret)
    assert {0o600} == {modes[path] for path in secret}
    for folder in (secrets, secrets / preparation.SECOND):
        assert 0o700 == modes.pop(folder / "authorities")
    assert {0o711} == {mode for path, mode in modes.items() if path.is_dir()}


def test_state_without_its_key_is_not_covered_up(tmp_path: Path) -> None:
    """If secrets are removed while the volumes stay, none is created in their place."""
    secrets, _ = _prepare(tmp_path)
    (secrets / "analyzer" / "state.key").unlink()

    with pytest.raises(SettingsError, match=r"state\.key, is missing"):
        _prepare(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("operator.token", None, "operator.token in the state directory is a link"),
        ("identity.key", None, "identity.key in the state directory is a link"),
        ("witness.key", None, "witness.key in the state directory is a link"),
        *(
            ("operator.token", text, r"operator\.token must hold 64")
            for text in (b"", b"not a token", b"ab" * 31)
        ),
    ],
)
def test_a_hostile_state_hands_out_nothing(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    """A link to another party's secret is not followed, and no false token is copied out."""
    secrets, states = _prepare(tmp_path)
    others, own = states / "issuer" / name, states / "shuffler" / name
    copied = [secrets / "shuffler" / file for file in ("operator.token", "witness.pub")]
    before = [file.read_bytes() for file in (others, *copied)]
    if content is None:
        own.unlink()
        own.symlink_to(others)
    else:
        own.write_bytes(content)

    with pytest.raises(SettingsError, match=message):
        _prepare(tmp_path)
    assert before == [file.read_bytes() for file in (others, *copied)]
