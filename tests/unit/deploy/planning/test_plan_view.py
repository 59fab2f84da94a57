import datetime
import json
import math
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analyzer.task_builder import complete
from common.crypto.hpke import HpkePrivateKey
from common.errors import PlanError, SettingsError
from deploy.cli import app
from deploy.planning.plan_view import draft, parse_cap, parse_head, parse_trust, to_json
from deploy.planning.planner import Plan, plan
from deploy.planning.requirements import Wishes
from deploy.tasks import drafts as draft_file

_RUNNER = CliRunner()
_ASKED = ["plan", "--users", "50000", "--domain-size", "5000", "--central-epsilon", "0.5"]
_NOW = 1_900_000_000.5


@cache
def _plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "n_users": 50_000,
        "n_min": 40_000,
        "domain_size": 5000,
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "messages_cap": 1.4,
        "local_cap": 6.0,
        "honest_fraction": 0.9,
    }
    return plan(Wishes(**fields | changes))


def _run(*arguments: str) -> Result:
    return _RUNNER.invoke(app, [*_ASKED, *arguments])


def test_a_program_reads_the_plan_as_json() -> None:
    """Every figure has its key; what it promises is what was asked."""
    outcome = _run("--local-cap", "6", "--n-min", "40000", "--json")
    found = json.loads(outcome.stdout)

    assert found["protocol"] in {"murs", "od-hp"}
    assert found["mechanism"]["name"] == "local-hashing"
    assert found["mechanism"]["local_epsilon"] <= 6
    assert found["messages_per_user"] == 1 + found["dummies_per_user"]
    assert found["bytes_per_user"] >= 124
    assert found["central_epsilon"] == found["guarantees"][0]["epsilon"] <= 0.5
    assert found["predicted_mse"] > 0
    assert [0.05] != found["predicted_mse_top"]
    assert found["predicted_mse_top"][0] > found["predicted_mse"]
    assert found["ratio_to_central_gaussian"] > 1
    assert found["n_min"] == 40_000
    assert found["delta"] == 1e-6
    assert found["runners_up"][0]["predicted_mse"] >= found["predicted_mse"]
    assert set(found["binding"]) <= {"central epsilon", "local cap", "messages cap"}


def test_no_local_noise_is_written_as_text_in_json_and_as_inf_in_toml() -> None:
    """JSON has no infinity, TOML has one."""
    found = _plan(
        domain_size=5, local_cap=math.inf, messages_cap=2.0, central_epsilon=1.0, n_users=100_000
    )

    assert to_json(found)["protocol"] == "puredump"
    assert to_json(found)["mechanism"]["local_epsilon"] == "inf"
    local = [g for g in to_json(found)["guarantees"] if g["coalition"] == "shuffler+analyzer"]
    assert [("inf", 0.0)] == [(g["epsilon"], g["delta"]) for g in local if g["delta"] == 0]
    assert tomllib.loads(draft(found, _NOW))["local_epsilon"] == math.inf


def test_the_draft_says_what_the_plan_says() -> None:
    """Under the keys of a draft; the deadline is a week ahead of the given clock."""
    found = _plan()
    fields = tomllib.loads(draft(found, _NOW))
    design = found.best.design

    assert fields.pop("deadline") == datetime.datetime(2030, 3, 24, 17, 46, 40, tzinfo=datetime.UTC)
    assert fields == {
        "protocol": design.protocol,
        "domain_size": 5000,
        "buckets": design.answers,
        "dummies_per_user": design.dummies_per_user,
        "local_epsilon": design.local_epsilon,
        "delta": 1e-6,
        "budget_epsilon": 0.5,
        "budget_delta": 1e-6,
        "n_min": 40_000,
        "target_size": 50_000,
        "assumed_honest_fraction": 0.9,
    }


def test_the_draft_tells_what_was_predicted_and_promised() -> None:
    """In comments, for whoever publishes the task."""
    found = _plan(rounds=2, messages_cap=1.0, domain_size=400)
    written = draft(found, _NOW, "staff")
    comments = [line for line in written.splitlines() if line.startswith("#")]

    with pytest.raises(PlanError, match="2 rounds are about the same users"):
        draft(found, _NOW)
    assert 'population = "staff"' in written
    assert f"{found.best.mse:.4g}" in comments[0]
    assert "40000 users or more, 36000 of them honest, over 2 tasks" in comments[1]


def test_the_command_writes_a_draft_that_is_read_back(tmp_path: Path) -> None:
    """By the reader that `task create` uses."""
    file = tmp_path / "draft.toml"
    outcome = _run("--local-cap", "4", "--messages-cap", "1", "--output", str(file))

    wanted = draft_file.read(file, bytes(32))
    assert wanted.protocol == "murs"
    assert wanted.local_epsilon == pytest.approx(4.0)
    assert "Written to" in outcome.stdout
    assert "shuffler+analyzer" in outcome.stdout
    assert "murs" in outcome.stdout


def test_a_plan_says_what_would_be_found_out_too_late() -> None:
    """Devices that would refuse, and a batch that one absent user would undo."""
    outcome = _run("--local-cap", "8", "--messages-cap", "1", "--n-min", "50000")
    quiet = _run("--local-cap", "4", "--messages-cap", "1", "--n-min", "40000")

    assert "a device answers up to a local epsilon of 4" in outcome.stdout.replace("\n", " ")
    assert "fewer than 50,000 users" in outcome.stdout.replace("\n", " ")
    assert "Note" not in quiet.stdout


def test_a_plan_whose_noise_hides_the_top_says_so() -> None:
    """A standard error above the share of the most frequent value; --max-mse is how to refuse."""
    capped = ("--local-cap", "4", "--messages-cap", "1", "--n-min", "40000")
    hidden = _run("--head", "0.00001", *capped)
    seen = _run("--head", "0.1", *capped)

    assert "hides even a top value: its share is 1e-05" in hidden.stdout.replace("\n", " ")
    assert "--max-mse" in hidden.stdout
    assert "hides" not in seen.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--trust", "everybody"), PlanError, "trust must be one of"),
        (("--messages-cap", "0.9"), PlanError, "messages cap is 0.9"),
        (("--n-min", "50001"), PlanError, "n_min is 50001 and users is 50000"),
        (("--delta", "1"), PlanError, "delta is 1"),
        (("--local-cap", "-1"), PlanError, "local cap is -1"),
        (("--local-cap", "much"), PlanError, "local cap must be a number, or none"),
        (("--head", "0.1;0.2"), PlanError, "head must be shares such as"),
        (("--max-mse", "-1"), PlanError, "largest error is -1"),
        (("--output", "/no/such/folder/draft.toml"), SettingsError, "folder is not there"),
    ],
)
def test_a_bad_option_is_refused_by_its_number(
    arguments: tuple[str, ...], error: type[Exception], message: str
) -> None:
    """One sentence that names the number and the rule."""
    outcome = _run(*arguments)

    assert isinstance(outcome.exception, error)
    assert message in str(outcome.exception)


def test_a_cap_may_be_left_out_or_be_none() -> None:
    """Both, and inf, mean no cap."""
    assert parse_cap(None) == parse_cap("none") == parse_cap("inf") == math.inf
    assert parse_cap("4.5") == 4.5


def test_a_head_is_a_list_of_shares() -> None:
    """In the order given."""
    assert parse_head("0.05, 0.03") == (0.05, 0.03)


def test_trust_is_one_of_three_words() -> None:
    """Exactly as written."""
    assert parse_trust("none") == "none"


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({"messages_cap": 1.0}, "murs"),
        pytest.param({"domain_size": 5}, "sh", marks=pytest.mark.slow),
        (
            {"n_users": 602_325, "n_min": 602_325, "domain_size": 41_270, "central_epsilon": 0.2}
            | {"local_cap": 8.0, "messages_cap": 3.0, "honest_fraction": 1.0},
            "od-hp",
        ),
        pytest.param(
            {"domain_size": 100, "central_epsilon": 0.3, "messages_cap": 3.0},
            "mixdump",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"domain_size": 5, "local_cap": math.inf, "messages_cap": 2.0},
            "puredump",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_task_made_of_a_draft_claims_no_more_than_was_planned(
    tmp_path: Path, changes: dict[str, Any], protocol: str
) -> None:
    """The analyzer makes a task of it, whose own claim keeps the wishes and the plan's bytes."""
    found = _plan(**changes)
    file = tmp_path / "draft.toml"
    file.write_text(draft(found, _NOW), encoding="utf-8")
    key = HpkePrivateKey.generate().public_key().raw
    task = complete(draft_file.read(file, key), analyzer_key=key, nonce=bytes(32))

    assert task.protocol == protocol
    assert task.central_epsilon <= found.wishes.central_epsilon
    assert task.central_epsilon == pytest.approx(found.promise.epsilon, rel=1e-3)
    assert task.envelope_bytes == found.best.design.bytes_per_user
    assert task.local_epsilon == found.best.design.local_epsilon
