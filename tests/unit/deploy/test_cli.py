from typer.testing import CliRunner

from deploy.cli import app


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
