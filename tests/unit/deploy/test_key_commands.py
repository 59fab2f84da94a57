"""`shuffledp keys` and `shuffledp tokens`, as an operator types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.errors import SettingsError
from common.signing import SigningIdentity
from common.user_token import TokenIdentity
from deploy.cli import app


def _run(*arguments: str) -> str:
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_keys_are_made_renewed_and_shown(tmp_path: Path) -> None:
    """As a table and as JSON, with the analyzer's signing identity if it is asked for."""
    keys, identity = str(tmp_path / "keys"), tmp_path / "identity.pub"
    identity.write_text(SigningIdentity.generate().public_identity().raw.hex(), encoding="ascii")
    made = json.loads(_run("keys", "make", keys, "--host", "a.example.org", "--json"))
    renewed = json.loads(_run("keys", "renew", keys, "shuffler", "--json"))
    shown = json.loads(_run("keys", "show", keys, "--identity", str(identity), "--json"))

    assert ["authority", "analyzer", "shuffler", "user_agent", "operator"] == [
        one["party"] for one in made["certificates"]
    ]
    changed = [
        old["party"]
        for old, new in zip(made["certificates"], renewed["certificates"], strict=True)
        if old["sha256"] != new["sha256"]
    ]
    assert ["shuffler"] == changed
    assert renewed["certificates"] == shown["certificates"]
    assert len(shown["signing_identity"]) == 16
    assert shown["signing_identity"] in _run("keys", "show", keys, "--identity", str(identity))


def test_tokens_are_made_under_one_key(tmp_path: Path) -> None:
    """A token a line, in a file of mode 0600 that is never written over."""
    key = ("--key-directory", str(tmp_path / "issuer"))
    first, second = tmp_path / "one.txt", tmp_path / "two.txt"
    one = json.loads(_run("tokens", "make", "3", "--out", str(first), *key, "--json"))
    two = json.loads(_run("tokens", "make", "2", "--out", str(second), *key, "--json"))
    tokens = [bytes.fromhex(line) for line in first.read_text(encoding="ascii").split()]

    assert one["token_identity"] == two["token_identity"]
    assert [True] * 3 == [TokenIdentity.from_hex(one["token_identity"]).accepts(t) for t in tokens]
    assert first.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="is there already"):
        _run("tokens", "make", "3", "--out", str(first), *key)


@pytest.mark.parametrize(
    "command",
    [
        *(("keys", "make"), ("keys", "renew"), ("keys", "show"), ("tokens", "make"), ("close",)),
        ("sentinels", "plant"),
    ],
)
def test_every_command_shows_an_example(command: tuple[str, ...]) -> None:
    """With --help."""
    assert f"Example: shuffledp {' '.join(command)}" in _run(*command, "--help")
