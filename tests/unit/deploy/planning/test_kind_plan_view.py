import io
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from typer.testing import CliRunner

from analyzer.task_builder import complete
from common.protocols import Kind, protocols_of
from common.task.draft import NumberDraft, PairDraft
from deploy.cli import app
from deploy.planning.kind_plan_view import draft, show, to_json
from deploy.planning.kind_planning import KindPlan, KindWishes, plan_kind
from deploy.tasks import drafts as draft_file
from deploy.terminal.json_output import dumps
from tests.support.kind_tasks import OTHER_KINDS

_KEY: Final = bytes(31) + b"\x09"
_NOW: Final = 1_900_000_000.5
_FIELDS: Final[dict[Kind, dict[str, object]]] = {
    "string": {},
    "mean": {"numbers": NumberDraft(low=0.0, high=24.0)},
    "vector": {"numbers": NumberDraft(low=1.0, high=5.0)},
    "key-value": {"pairs": PairDraft(low=0.0, high=5.0)},
}
_SIZES: Final[dict[Kind, int]] = {"string": 1, "mean": 1, "vector": 3, "key-value": 3}


@cache
def _plan(kind: Kind) -> KindPlan:
    """Plan with a local cap that is the first tried, which is quick."""
    return plan_kind(
        KindWishes(
            kind=kind,
            n_users=5000,
            n_min=4000,
            central_epsilon=0.5,
            delta=1e-6,
            size=_SIZES[kind],
            local_cap=0.75,
            fields=dict(_FIELDS[kind]),
        )
    )


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_the_draft_is_read_back_and_makes_the_same_claims(tmp_path: Path, kind: Kind) -> None:
    """As `task create` reads it; with a deadline of its own and the budget that was asked for."""
    (tmp_path / "draft.toml").write_text(draft(_plan(kind), _NOW), encoding="utf-8")
    read = draft_file.read(tmp_path / "draft.toml", _KEY)
    planned = _plan(kind).best.task
    task = complete(read, analyzer_key=_KEY, nonce=bytes(32))

    assert (planned.local_epsilon, planned.central_epsilon, planned.mechanism) == (
        task.local_epsilon,
        task.central_epsilon,
        task.mechanism,
    )
    assert (0.5, 1e-6) == (task.budget_epsilon, task.budget_delta)
    assert 1_900_000_000 + 7 * 86_400 == task.deadline


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_the_draft_s_comments_say_what_is_promised(kind: Kind) -> None:
    """Rounded up, and before everything else."""
    text = draft(_plan(kind), _NOW)
    lines = text.splitlines()

    assert lines[0].startswith("# Predicted for 5000 users")
    assert "Promised to each of 4000 users or more" in lines[1]
    assert all(line.startswith("#") for line in lines[:4])
    assert tomllib.loads(text)["protocol"] == _plan(kind).best.draft.protocol


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_program_reads_the_plan_as_json(kind: Kind) -> None:
    """Every figure has its key, and every other protocol of the kind its row."""
    fields = json.loads(dumps(to_json(_plan(kind))))
    told = [fields["protocol"], *(other["protocol"] for other in fields["runners_up"])]

    assert sorted(protocols_of(kind)) == sorted(told)
    assert kind == fields["kind"]
    assert fields["central_epsilon"] <= 0.5
    assert fields["local_epsilon"] <= 0.75
    assert 0 < fields["predicted_mse"]
    assert (5000, 4000, 1e-6) == (fields["users"], fields["n_min"], fields["delta"])
    assert "analyzer" == fields["guarantees"][0]["coalition"]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_plan_is_printed_with_every_protocol(kind: Kind) -> None:
    """And with what is promised."""
    console = Console(file=io.StringIO(), width=200)
    show(_plan(kind), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert all(name in printed for name in protocols_of(kind))
    assert "What each of 4,000 users or more is promised" in printed
    assert ("what its projection leaves out" in printed) == (kind == "vector")
    assert ("a floor of what decoding will err by" in printed) == (kind == "string")


def test_the_command_prints_json_alone(tmp_path: Path) -> None:
    """On standard output; and writes the draft that it says."""
    outcome = CliRunner().invoke(
        app,
        [
            *("plan", "--task-kind", "mean", "--users", "5000", "--central-epsilon", "0.5"),
            *("--low", "0", "--high", "24", "--local-cap", "0.75", "--population", "staff"),
            *("--output", str(tmp_path / "draft.toml"), "--json"),
        ],
    )
    fields = json.loads(outcome.stdout)
    read = draft_file.read(tmp_path / "draft.toml", _KEY)

    assert 0 == outcome.exit_code
    assert (fields["protocol"], NumberDraft(low=0.0, high=24.0), "staff") == (
        read.protocol,
        read.numbers,
        read.population,
    )


@pytest.mark.parametrize(
    ("kind", "counted"), [("vector", "numbers a vector has"), ("key-value", "keys there are")]
)
def test_of_several_numbers_or_keys_their_number_is_asked_for(kind: str, counted: str) -> None:
    """One is not what anybody means who says nothing."""
    outcome = CliRunner().invoke(
        app, ["plan", "--task-kind", kind, "--users", "9", "--central-epsilon", "1"]
    )

    assert f"--domain-size is missing: how many {counted}" in str(outcome.exception)


@pytest.mark.parametrize(
    "option",
    [
        ("--rounds", "2"),
        ("--messages-cap", "3"),
        ("--max-mse", "0.1"),
        ("--trust", "none"),
        ("--head", "0.2"),
    ],
)
def test_an_option_for_items_is_refused(option: tuple[str, str]) -> None:
    """Before anything is planned; by its name."""
    outcome = CliRunner().invoke(
        app,
        ["plan", "--task-kind", "mean", "--users", "9", "--central-epsilon", "1", *option],
    )

    assert 0 != outcome.exit_code
    assert f"{option[0]} is for categorical data" in str(outcome.exception)


@pytest.mark.parametrize("kind", ["string", "categorical"])
@pytest.mark.parametrize("end", ["--low", "--high"])
def test_a_range_is_for_numbers_and_pairs(kind: str, end: str) -> None:
    """Whoever gives one for anything else is told."""
    asked = ["plan", "--task-kind", kind, "--users", "9", "--central-epsilon", "1", end, "0"]
    outcome = CliRunner().invoke(app, asked)

    assert 0 != outcome.exit_code
    assert f"{end} is for numbers and pairs; --task-kind is {kind}" in str(outcome.exception)


@pytest.mark.parametrize(
    "option",
    [
        ("--accounting", "published"),
        ("--messages-cap", "2"),
        ("--figure", "3"),
        ("--dataset", "zipf:9"),
        ("--plot", "errors"),
    ],
)
def test_an_option_of_simulations_of_items_is_refused(option: tuple[str, str]) -> None:
    """Before anything is simulated; by the name that was given."""
    outcome = CliRunner().invoke(app, ["simulate", "--task-kind", "mean", *option])

    assert 0 != outcome.exit_code
    assert f"{option[0]} is for categorical data" in str(outcome.exception)


@pytest.mark.parametrize("epsilon", ["3000", "1e308", "inf"])
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_an_epsilon_beyond_all_accounting_is_refused(command: str, epsilon: str) -> None:
    """By its range, before anything is computed."""
    users = ["--users", "2000"]
    asked = [command, "--task-kind", "mean", "--central-epsilon", epsilon, *users]
    outcome = CliRunner().invoke(app, asked)

    assert "it must lie between 1e-06 and 100" in str(outcome.exception)
