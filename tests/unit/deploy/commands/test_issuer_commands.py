"""`shuffledp issuer`, as an operator types it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import shuffledp.issuer.server
from shuffledp.common.errors import PeerRefusalError, SettingsError
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.deploy.clients.issuer import draw_people
from shuffledp.deploy.tasks.drafts import read_token_key
from shuffledp.issuer.entitlements import PeopleList
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.issuer.token_keys import TokenKeys
from tests.support.command_line import shown, shown_json
from tests.support.issuers import ISSUER_NAME, people_file
from tests.support.loop_thread import LoopThread


def test_each_person_gets_an_invitation(tmp_path: Path) -> None:
    """Printed for one person, or written for all, to a file that only its owner can read."""
    file, out = tmp_path / "credentials.txt", tmp_path / "invitations.txt"
    file.write_bytes(draw_people(["Ada", "Bo Li"]).credentials)
    given = "ab" * 32, "--credentials", str(file), "--page", "https://poll.example/"
    address = shown("issuer invite", *given, "--person", "Bo Li").strip()
    shown("issuer invite", *given, "--output", str(out))
    lines = out.read_text(encoding="utf-8").splitlines()

    assert address.startswith(f"https://poll.example/#task={'ab' * 32}&credential=")
    assert f"Bo Li {address}" == lines[1]
    assert 2 == len(set(lines))
    assert 0o600 == out.stat().st_mode & 0o777


async def test_each_person_gets_a_secret_and_the_issuer_its_hash(tmp_path: Path) -> None:
    """Both files are readable to their owner only; secrets are never drawn over others."""
    names, folder = tmp_path / "names.txt", tmp_path / "people"
    names.write_text("Ada\n\n Bo Li \n", encoding="utf-8")
    written = shown_json("issuer people", str(names), "--output-dir", str(folder))
    lines = (folder / "credentials.txt").read_text(encoding="utf-8").splitlines()
    people = PeopleList(folder / "people.txt")

    assert {
        "people": 2,
        "list": str(folder / "people.txt"),
        "credentials": str(folder / "credentials.txt"),
    } == written
    assert ["Ada", "Bo Li"] == [
        await people.person(bytes.fromhex(line.rpartition(" ")[2])) for line in lines
    ]
    assert 0o700 == folder.stat().st_mode & 0o777
    assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    for line in lines:
        assert line.rpartition(" ")[2] not in (folder / "people.txt").read_text(encoding="utf-8")
    with pytest.raises(SettingsError, match="already exists"):
        shown("issuer people", str(names), "--output-dir", str(folder))
    assert "2 secrets drawn" in shown(
        "issuer people", str(names), "--output-dir", str(tmp_path / "more")
    )


@pytest.mark.parametrize("content", ["", "Ada\nAda", "\udcff", "x" * 201])
def test_a_file_of_names_that_breaks_a_rule_writes_nothing(tmp_path: Path, content: str) -> None:
    """The message repeats no name."""
    names, folder = tmp_path / "names.txt", tmp_path / "people"
    names.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError) as caught:
        shown("issuer people", str(names), "--output-dir", str(folder))

    assert "Ada" not in str(caught.value)
    assert not folder.exists()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of an issuer that runs in a thread."""
    thread = LoopThread()
    settings = IssuerSettings(
        state_directory=tmp_path / "issuer",
        tls_directory=tmp_path / "tls",
        issuer_name=ISSUER_NAME,
        people=people_file(tmp_path / "people.txt"),
    )
    service = thread.run(shuffledp.issuer.server.start(settings))
    yield service.address
    thread.run(service.stop())
    thread.stop()


def test_an_operator_creates_a_key_for_a_draft(tmp_path: Path, address: str) -> None:
    """A file that `task create` reads; an end in the past or a wrong token is refused."""
    file, token_file = tmp_path / "token-key.json", tmp_path / "issuer" / "operator.token"
    at = ["--address", f"issuer={address}", "--authority", str(tmp_path / "tls" / "authority.pem")]
    whole = [*at, "--token-file", str(token_file), "--output", str(file)]
    made = shown_json("issuer new-key", "--end", "2100-01-02", *whole)
    first = read_token_key(file)
    with pytest.raises(SettingsError, match="already exists and may hold a key in use"):
        shown("issuer new-key", "--end", "2100-01-02", *whole)
    file.unlink()
    named = "--population", "staff"
    printed = shown("issuer new-key", "--end", "2100-01-02T03:04:05", *named, *whole)
    second = read_token_key(file)

    assert (4_102_531_200, ISSUER_NAME) == (made["end"], made["issuer"])
    assert (4_102_531_200, 4_102_542_245) == (first.end, second.end)
    assert f"Key of {ISSUER_NAME} written to" in printed
    assert {each.token_key().key_id.hex() for each in (first, second)} == {
        path.stem.removeprefix("token-") for path in (tmp_path / "issuer").glob("token-*.key")
    }
    held = TokenKeys(StateDirectory.open(tmp_path / "issuer"))
    found = [held.find(each.token_key().key_id, 0).population for each in (first, second)]
    assert ["", "staff"] == found
    file.unlink()
    with pytest.raises(PeerRefusalError, match="UTC; it must be after the present, 20"):
        shown("issuer new-key", "--end", "2001-01-02", *whole)
    wrong = tmp_path / "wrong.token"
    wrong.write_text("ab" * 32, encoding="ascii")
    with pytest.raises(PeerRefusalError, match="wrong operator token"):
        shown("issuer new-key", "--end", "2100-01-02", *at, "--token-file", str(wrong))
