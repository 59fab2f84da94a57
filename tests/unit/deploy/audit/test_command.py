"""`shuffledp audit` as it is typed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from common.errors import SettingsError, ShuffleDpError, TaskError
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.faults.catalogue import FAULTS
from deploy.audit.sample_task import sample_task
from deploy.cli import app


def _run(folder: Path, *words: str) -> Result:
    where = ["--output", str(folder / "a.json"), "--html", str(folder / "a.html")]
    return CliRunner().invoke(app, ["audit", *words, *where])


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """Give the file of a small task."""
    task = sample_task(
        protocol="murs", domain_size=30, buckets=5, local_epsilon=2.0, n_min=500, target_size=500
    )
    path = tmp_path / "task.json"
    path.write_bytes(task.to_bytes())
    return path


def test_a_scenario_is_played_shown_and_written(tmp_path: Path, task_file: Path) -> None:
    """Of a published task: a table, a file for programs and a page."""
    outcome = _run(
        tmp_path, "--scenario", "linking", "--processes", "1", "--task-file", str(task_file)
    )
    written = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))

    assert outcome.exit_code == 0, outcome.output
    assert "Passed: all 1 rows" in " ".join(outcome.output.split())
    assert [row["scenario"] for row in written["findings"]] == ["linking"]
    assert written["n_users"] == 500
    assert "audit.html" not in written["command"]
    assert "<title>Audit passed" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_json_is_all_that_programs_are_printed(tmp_path: Path, task_file: Path) -> None:
    """The same as the file holds."""
    words = ("--scenario", "linking", "--processes", "1", "--task-file", str(task_file))
    outcome = _run(tmp_path, *words, "--json", "--users", "2000", "--seed", "5")
    printed = json.loads(outcome.stdout)

    assert printed == json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert (printed["n_users"], printed["seed"], printed["mode"]) == (2000, 5, "quick")


def test_what_is_not_as_it_must_be_ends_with_1(tmp_path: Path, task_file: Path) -> None:
    """With a fault planted, and the files written all the same."""
    outcome = _run(
        tmp_path,
        *("--scenario", "small-rules", "--plant", "labels-cut", "--processes", "1"),
        *("--task-file", str(task_file)),
    )

    assert outcome.exit_code == 1
    assert "NOT PASSED" in outcome.output
    assert "Found by small-rules." in " ".join(outcome.output.split())
    assert (tmp_path / "a.html").exists()


def test_scenarios_and_faults_are_listed(tmp_path: Path) -> None:
    """All of them, and nothing is played."""
    outcome = _run(tmp_path, "--list")

    assert outcome.exit_code == 0
    for name in (*(scenario.name for scenario in SCENARIOS), *FAULTS):
        assert name in outcome.output
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["--quick", "--full"], SettingsError, "not both"),
        (["--rehearse", "--plant", "labels-cut"], SettingsError, "not both"),
        (["--rehearse", "--full"], SettingsError, "leave --full out"),
        (["--scenario", "none"], SettingsError, "there is no scenario 'none'"),
        (["--scenario", "draw"], SettingsError, "did you mean draws?"),
        (["--plant", "none"], SettingsError, "there is no fault 'none'"),
        (["--plant", "label-cut"], SettingsError, "did you mean labels-cut?"),
        (["--rehearse", "--scenario", "skippers"], SettingsError, "no fault is known"),
        (["--users", "19999"], SettingsError, "is never released"),
        (["--task-file", "missing.json"], SettingsError, "cannot be read"),
        (["--task-file", "a.json", "--draft", "b.toml"], SettingsError, "not both"),
        (["--draft", "missing.toml"], TaskError, "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, words: list[str], kind: type[ShuffleDpError], said: str
) -> None:
    """In a sentence, and before anything is played."""
    outcome = _run(tmp_path, *words)

    assert isinstance(outcome.exception, kind)
    assert said in str(outcome.exception)


def test_a_file_that_holds_no_task_is_refused(tmp_path: Path) -> None:
    """Whatever is in it."""
    path = tmp_path / "task.json"
    path.write_bytes(b"{}")

    error = _run(tmp_path, "--task-file", str(path)).exception

    assert isinstance(error, TaskError)
    assert str(path) in str(error)
    assert "--draft" in str(error)
