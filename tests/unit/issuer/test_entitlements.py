import os
from hashlib import sha256
from pathlib import Path

import pytest

from shuffledp.common.errors import CredentialError, SettingsError
from shuffledp.issuer.entitlements import PeopleList, WatchedFile, parse_people
from tests.support.issuers import SECRETS, people_file

_HASH = "ab" * 32


async def test_a_secret_names_its_person(tmp_path: Path) -> None:
    """Names may contain spaces; another secret is nobody's."""
    people = PeopleList(people_file(tmp_path / "people.txt"))

    assert list(SECRETS) == [await people.person(secret) for secret in SECRETS.values()]
    for wrong in (b"", bytes(32), b"Ada", sha256(SECRETS["Ada"]).digest()):
        with pytest.raises(CredentialError, match="anyone on the issuer's list") as caught:
            await people.person(wrong)
        assert "Ada" not in str(caught.value)


async def test_a_changed_list_is_read_again(tmp_path: Path) -> None:
    """People are added and removed without a restart; a damaged or missing list changes nothing."""
    file = people_file(tmp_path / "people.txt")
    people = PeopleList(file)
    for unusable in ("Ada\n", None):
        if unusable is None:
            file.unlink()
        else:
            file.write_text(unusable, encoding="utf-8")
        assert "Ada" == await people.person(SECRETS["Ada"])
    new = tmp_path / "new.txt"
    new.write_text(f"Cy {sha256(b'cy').hexdigest()}\n", encoding="utf-8")
    new.replace(file)

    assert "Cy" == await people.person(b"cy")
    with pytest.raises(CredentialError):
        await people.person(SECRETS["Ada"])


async def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    """A damaged one too: each call would otherwise read it."""
    reads = list[bytes]()

    def parse(raw: bytes) -> bytes:
        reads.append(raw)
        if raw == b"damaged":
            raise SettingsError("damaged")
        return raw

    file = tmp_path / "file"
    file.write_bytes(b"first")
    watched = WatchedFile(file, parse, 10)
    for content in (b"first", b"damaged", b"third"):
        file.write_bytes(content)
        os.utime(file, ns=(len(reads), len(reads)))
        for _ in range(3):
            await watched.current()
    assert [b"first", b"first", b"damaged", b"third"] == reads
    assert b"third" == await watched.current()
    file.write_bytes(b"too long for it")
    assert b"third" == await watched.current()
    with pytest.raises(SettingsError, match="at most 10 bytes"):
        WatchedFile(file, parse, 10)
    with pytest.raises(SettingsError, match="cannot be read"):
        WatchedFile(tmp_path / "none", parse, 10)


@pytest.mark.parametrize(
    "text",
    [
        "Ada",
        _HASH,
        f" {_HASH}",
        f"Ada {_HASH[2:]}",
        f"Ada {_HASH}ab",
        f"Ada {_HASH[1:]}x",
        f"{'a' * 201} {_HASH}",
        f"Ada {_HASH}\nBo {_HASH}",
        f"Ada {_HASH}\nAda {'cd' * 32}",
        "\udcff",
    ],
)
def test_a_list_that_breaks_a_rule_is_refused(text: str) -> None:
    """The message names the line and the rule, never a person."""
    raw = text.encode("utf-8", "surrogateescape")
    with pytest.raises(SettingsError, match="list of people") as caught:
        parse_people(raw)

    assert "Ada" not in str(caught.value)
    lines = text.splitlines()
    assert f"line {len(lines)}" in str(caught.value) or "UTF-8" in str(caught.value)


def test_empty_lines_and_spaces_in_names_are_allowed() -> None:
    """As in files of tokens."""
    assert {bytes.fromhex(_HASH): "Bo Li"} == parse_people(f"\n  \nBo Li {_HASH}\n".encode())
