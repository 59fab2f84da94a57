"""`shuffledp series` without services: the forecast, and wrong options."""

import math
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.errors import SettingsError, ShuffleDpError, TaskError, UsageError
from shuffledp.common.runtime.clock import SystemClock
from tests.support.command_line import shown, shown_json
from tests.support.series import template

_PUBLISH: Final = ("--address=analyzer=127.0.0.1:1", "--token-file", "t")


@pytest.mark.parametrize(
    ("command", "options", "kind", "rule"),
    [
        ("publish", (*_PUBLISH, "--token-key", "k.json"), UsageError, "must contain {round}:"),
        ("publish", (*_PUBLISH, "--token-key", "{round}.json"), UsageError, "no shuffler key: use"),
        ("publish", (*_PUBLISH, "--relay-key", "r"), UsageError, "this one has none"),
        ("forecast", ("--users", "999"), TaskError, "users is 999; it must lie between 1000 and"),
        ("forecast", _PUBLISH[:1], UsageError, "there is no operator token of the analyzer"),
        ("forecast", (), SettingsError, "all rounds of the series are over"),
        ("show", _PUBLISH, SettingsError, "t cannot be read"),
    ],
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, command: str, options: tuple[str, ...], kind: type[ShuffleDpError], rule: str
) -> None:
    """The message names the option and the rule."""
    with pytest.raises(kind, match=rule):
        shown("series", command, str(template(tmp_path)), *options)


def test_a_forecast_needs_no_service(tmp_path: Path) -> None:
    """It has a row for each round, and prints a round's claim."""
    path = str(template(tmp_path, first=int(SystemClock().now()), rounds=3))
    found = shown_json("series forecast", path)
    printed = shown("series forecast", path)

    assert [1, 2, 3] == [row["round"] for row in found["rounds"]]
    assert [2.0, 4.0, 6.0] == [row["device_local_epsilon"] for row in found["rounds"]]
    assert "a device's total_local_epsilon_cap of 20 lasts 10 days" in printed
    assert "Claimed guarantees: epsilon" in printed


def test_a_forecast_asks_the_analyzer_of_the_profile(tmp_path: Path) -> None:
    """The token file is then read; an empty address asks nobody."""
    path = str(template(tmp_path, first=int(SystemClock().now()), rounds=3))
    profile = tmp_path / "shuffledp.toml"
    profile.write_text('analyzer = "127.0.0.1:1"\nanalyzer_token_file = "absent"\n', "utf-8")
    arguments = ("--profile", str(profile), "series", "forecast", path)

    with pytest.raises(SettingsError, match="absent cannot be read"):
        shown(*arguments)
    assert shown(*arguments, "--address=analyzer=")


def test_a_forecast_of_a_lasting_question_ends_at_its_permanent_epsilon(tmp_path: Path) -> None:
    """For the population and for a device; it says that this assumes that texts stay the same."""
    fields = {"buckets": None, "dummies_per_user": None, "local_epsilon": None}
    texts = '{question = "state", bits = 32, cohorts = 8}'
    own = {"protocol": '"rappor"', "domain_size": None, "texts": texts, "budget_epsilon": 9.0}
    path = str(template(tmp_path, first=int(SystemClock().now()), **fields, **own))
    found = shown_json("series forecast", path)
    printed = shown("series forecast", path)
    most = 2 * math.log(3)  # one hash and f = 1/2

    last = found["rounds"][-1]
    for figure in ("composed_epsilon", "device_local_epsilon", "device_central_epsilon"):
        assert most == pytest.approx(last[figure])
    assert "if each person's text stays the same" in found["basis"]
    assert found["basis"] in printed
