from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.errors import SettingsError, ValueRangeError
from deploy.cli import app
from deploy.clients.base import read_token
from deploy.tasks.value_parser import parse_value


def test_the_version_is_the_installed_one() -> None:
    """For bug reports."""
    result = CliRunner().invoke(app, ["--version"])

    assert 0 == result.exit_code
    assert result.stdout.startswith("shuffledp 0.")


def test_help_names_every_command() -> None:
    """And no command needs another to be looked up first."""
    result = CliRunner().invoke(app, ["--help"])

    assert 0 == result.exit_code
    for command in (
        "demo",
        "load",
        "account",
        "plan",
        "result",
        "ledger",
        "contribute",
        "task",
        "receipt",
        "sentinels",
    ):
        assert f"\n  {command}" in result.stdout


@pytest.mark.parametrize("text", ["", "-1", "1.5", "9" * 21, "9" * 5000, "\u0663"])
def test_a_value_that_is_no_items_number_is_refused_without_being_repeated(text: str) -> None:
    """Thousands of digits too, which Python itself refuses to read."""
    with pytest.raises(ValueRangeError, match=r"^a value is an item's number, 0 or more$"):
        parse_value(text, "categorical")


@pytest.mark.parametrize("content", [b"", b"a\x01b", b"a\nb", b"\xff"])
def test_a_file_without_a_token_is_refused_before_a_call(tmp_path: Path, content: bytes) -> None:
    """Otherwise gRPC would fail, with an error of its own, on a header that it cannot send."""
    (tmp_path / "token").write_bytes(content)

    with pytest.raises(SettingsError, match="does not hold an operator's token"):
        read_token(tmp_path / "token")
