"""Options of `shuffledp load` that would be ignored."""

import pytest
from typer.testing import CliRunner

from common.errors import PlanError, SettingsError
from deploy.cli import app
from deploy.load.ignored import refuse_ignored
from deploy.load.target import TargetKind

_DIGEST = "5b" * 32
_SERVICES = ["--shuffler", "127.0.0.1:1"]
_MINE = "--i-run-these-services"


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (["--local", "--metrics", "x=http://127.0.0.1:1/m", "5b1f"], "TASK, --metrics"),
        (["--local", "--analyzer", "127.0.0.1:1", "--token-file", "t"], "--analyzer, --token-file"),
        (["--sink", "--authority", "a.pem"], "--authority"),
        (["--sink", "--shuffler-token-file", "t"], "--shuffler-token-file"),
        (["--local", "--certificate", "c", "--key", "k"], "--certificate, --key"),
        (["--sink", "--close"], "--close"),
        ([*_SERVICES, _DIGEST, "--token-file", "t"], "--token-file"),
        ([*_SERVICES, _DIGEST, "--key", "k"], "--key"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--rate", "5"], "--rate"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--mode", "users"], "--mode"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--metrics", "x=http://h/m"], "--metrics"),
        (["--local", "--i-run-these-services"], "--i-run-these-services"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", _MINE], _MINE),
        ([*_SERVICES, _DIGEST, "--shuffler-token-file", "t", _MINE], _MINE),
        ([*_SERVICES, "--replay", "u", "--dataset", "zipf:9"], "--dataset"),
        ([*_SERVICES, "--replay", "u", "--users", "5"], "--users"),
        ([*_SERVICES, "--replay", "u", "--misbehaving", "0"], "--misbehaving"),
        (["--sink", "--replay", "u", "--draft", "d.toml"], "--draft"),
        (["--sink", "--step-seconds", "10"], "--step-seconds"),
        (["--local", "--rate", "5", "--p99-limit", "9"], "--p99-limit"),
        (["--local", "--rate", "5", "--burst", "9"], "--burst"),
        (["--local", "--rate", "5", "--concurrency", "9"], "--concurrency"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused_by_its_name(
    given: list[str], refused: str
) -> None:
    """Before anything is read or started, those alone, and also where it is the default."""
    result = CliRunner().invoke(app, ["load", *given])

    assert isinstance(result.exception, PlanError), result.output
    assert str(result.exception).startswith(f"leave {refused} out: ")


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("services", "shuffler authority task users prepare seed dataset"),
        ("services", "shuffler prepare task ramp step_seconds"),
        ("services", "shuffler replay task analyzer token_file metrics close mode seed json"),
        ("local", "local users rate misbehaving close draft"),
        ("sink", "sink replay mode processes concurrency"),
        ("services", "shuffler task ramp step_seconds p99_limit"),
    ],
)
def test_options_that_mean_something_are_taken(kind: TargetKind, given: str) -> None:
    """A task may be named beside a replayed file: then it must be that file's."""
    refuse_ignored(kind, given.split(), bursts=False)


@pytest.mark.parametrize("given", [[_DIGEST, "--users", "5"], ["--replay", "u", "--mode", "bulk"]])
def test_running_services_are_sent_nothing_without_their_operators_consent(
    given: list[str],
) -> None:
    """What any device knows is not enough. Before anything is read or asked."""
    result = CliRunner().invoke(app, ["load", *_SERVICES, *given])

    assert isinstance(result.exception, PlanError), result.output
    assert "--shuffler-token-file, or say --i-run-these-services" in str(result.exception)


@pytest.mark.parametrize("given", [[_MINE], ["--shuffler-token-file", "t"], ["--prepare", "u"]])
def test_consent_is_given_by_word_or_token_and_not_needed_to_prepare(given: list[str]) -> None:
    """Then the next thing is looked at: here a file that is not there."""
    asked = ["load", *_SERVICES, _DIGEST, "--authority", "nowhere/a.pem", *given]
    result = CliRunner().invoke(app, asked)

    assert isinstance(result.exception, SettingsError), result.output
    assert "cannot be read" in str(result.exception)
