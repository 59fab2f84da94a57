"""`shuffledp series` without services: the forecast, the dry run, and wrong options."""

import json
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from common.errors import SettingsError, ShuffleDpError, TaskError
from common.runtime.clock import SystemClock
from deploy.cli import app
from tests.support.series import template

_PUBLISH: Final = ("--analyzer", "127.0.0.1:1", "--token-file", "t", "--shuffler-key", "k")


@pytest.mark.parametrize(
    ("command", "options", "kind", "rule"),
    [
        ("publish", (), SettingsError, "publishing needs --analyzer, --token-file and --shuffler"),
        ("publish", ("--token-key", "k.json"), SettingsError, r"must contain {round}: each round"),
        ("publish", ("--dry-run",), TaskError, "the deadline, 2023-12-14 22:13 UTC, is not in the"),
        ("publish", (*_PUBLISH, "--token-key", "{round}.json"), SettingsError, "t cannot be read"),
        ("forecast", ("--caps", "4, 20"), SettingsError, "--caps needs 4 numbers, such as 4, 20,"),
        ("forecast", ("--users", "999"), TaskError, "users is 999; it must lie between 1000 and"),
        ("forecast", ("--analyzer", "h:1"), SettingsError, "--analyzer needs the operator's"),
        ("show", _PUBLISH[:4], SettingsError, "t cannot be read"),
    ],
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, command: str, options: tuple[str, ...], kind: type[ShuffleDpError], rule: str
) -> None:
    """The message names the option and the rule."""
    with pytest.raises(kind, match=rule):
        CliRunner().invoke(
            app, ["series", command, str(template(tmp_path)), *options], catch_exceptions=False
        )


def test_a_forecast_and_a_dry_run_need_no_service(tmp_path: Path) -> None:
    """The forecast has a row for each round; the dry run prints the guarantees of the last."""
    first = int(SystemClock().now())
    path = str(template(tmp_path, first=first, rounds=3))
    forecast = CliRunner().invoke(app, ["series", "forecast", path, "--json"])
    preview = CliRunner().invoke(app, ["series", "publish", path, "--dry-run", "--json"])

    found = json.loads(forecast.stdout)
    assert [1, 2, 3] == [row["round"] for row in found["rounds"]]
    assert [2.0, 4.0, 6.0] == [row["device_local_epsilon"] for row in found["rounds"]]
    assert first + 3 * 86_400 == json.loads(preview.stdout)["task"]["deadline"]
