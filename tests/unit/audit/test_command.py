"""The command `shuffledp audit`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shuffledp.audit.harness.tasks import sample_task
from shuffledp.audit.runner import AuditRun
from shuffledp.audit.scenarios import SCENARIOS
from shuffledp.common.errors import SettingsError, ShuffleDpError, TaskError, UsageError
from shuffledp.deploy.cli import app
from tests.support.audit_reports import failed_report


def _run(folder: Path, *words: str) -> Result:
    where = ["--output", str(folder / "a.json"), "--html", str(folder / "a.html")]
    return CliRunner().invoke(app, ["audit", *words, *where])


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """The file of a small task."""
    task = sample_task(
        protocol="murs", domain_size=30, buckets=5, local_epsilon=2.0, n_min=500, target_size=500
    )
    path = tmp_path / "task.json"
    path.write_bytes(task.to_bytes())
    return path


_WEIGHTS = f"left_weight = {2**29}, right_weight = {2**29}"
_NOISE = f"distribution = 'geometric', peak = 25, most = 50, {_WEIGHTS}"
_TWO_SHUFFLERS = f"""
protocol = 'sageo'
domain_size = 3
local_epsilon = inf
delta = 1e-6
n_min = 9
target_size = 9
deadline = 2096-12-06T22:10:32Z
shuffler_name = 'first'
shuffler = {{{_NOISE}}}
relay = {{name = 'second', {_NOISE}}}
"""
_LINKING = ("--scenario", "linking", "--processes", "1", "--task-file")


def test_a_scenario_is_run_shown_and_written(tmp_path: Path, task_file: Path) -> None:
    """On a published task: a table, a JSON file and a page; or the JSON alone."""
    outcome = _run(tmp_path, *_LINKING, str(task_file))
    written = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))

    assert outcome.exit_code == 0, outcome.output
    assert "The check passed." in " ".join(outcome.output.split())
    assert [row["scenario"] for row in written["findings"]] == ["linking"]
    assert written["n_users"] == 500
    assert "<title>Audit passed" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "1 of 1 done: Seeds link no two messages" in outcome.stderr

    words = (str(task_file), "--json", "--users", "2000", "--seed", "5")
    printed = json.loads(_run(tmp_path, *_LINKING, *words).stdout)
    assert printed == json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert (printed["n_users"], printed["seed"], printed["mode"]) == (2000, 5, "quick")


def test_a_draft_with_two_shufflers_is_audited_as_its_task_would_be(tmp_path: Path) -> None:
    """It names no key of the second one; what is for one shuffler is not run."""
    draft = tmp_path / "draft.toml"
    draft.write_text(_TWO_SHUFFLERS)
    chosen = ("--scenario", "first-shuffler-forges-tree", "--scenario", "n-1", "--processes", "1")
    outcome = _run(tmp_path, *chosen, "--draft", str(draft))
    written = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))

    assert outcome.exit_code == 0, outcome.output
    assert ["holds"] == [row["verdict"] for row in written["findings"]]
    assert ["n-1"] == written["other_shufflers"]
    assert "Not run with two shufflers: n-1." in outcome.output


def test_the_self_test_shows_each_result(tmp_path: Path, task_file: Path) -> None:
    """As text and as JSON; it writes no files."""
    words = ("--self-test", *_LINKING, str(task_file))
    outcome = CliRunner().invoke(app, ["audit", *words, "--output", str(tmp_path / "a.html")])
    [printed] = json.loads(_run(tmp_path, *words, "--json").stdout)

    assert outcome.exit_code == 0, outcome.output
    assert "linking: weakness detected" in outcome.output
    assert "weakness: Devices start their generator from the same seed each" in outcome.output
    assert "every weakness was detected" in outcome.output
    assert printed["rang"] is True
    assert {task_file} == set(tmp_path.iterdir())


def test_a_failed_check_ends_with_status_1(
    tmp_path: Path, task_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are still written."""
    monkeypatch.setattr(AuditRun, "audit", lambda *_, **__: failed_report())
    outcome = _run(tmp_path, "--scenario", "linking", "--task-file", str(task_file))

    assert outcome.exit_code == 1
    assert "NOT PASSED" in outcome.output
    assert (tmp_path / "a.html").exists()


def test_scenarios_are_listed(tmp_path: Path) -> None:
    """All scenarios have unique names, and none is run."""
    outcome = CliRunner().invoke(app, ["audit", "--list", "--output", str(tmp_path / "a.html")])
    names = [scenario.name for scenario in SCENARIOS]

    assert len(set(names)) == len(names)
    assert all(name in outcome.output for name in names)
    assert "self-test: The claims count colluding" in outcome.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["--quick", "--full"], UsageError, "not both"),
        (["--self-test", "--full"], UsageError, "drop --full"),
        (["--scenario", "none"], SettingsError, "there is no scenario 'none'"),
        (["--users", "19999"], UsageError, "it must be at least n_min"),
        (["--task-file", "missing.json"], SettingsError, "cannot be read"),
        (["--task-file", "a.json", "--draft", "b.toml"], UsageError, "not both"),
        (["--draft", "missing.toml"], TaskError, "cannot be read"),
        (["--task-file", __file__], TaskError, "use --draft for a draft"),
    ],
)
def test_conflicting_or_invalid_options_are_refused(
    tmp_path: Path, words: list[str], kind: type[ShuffleDpError], message: str
) -> None:
    """With a sentence, and before anything is run."""
    outcome = _run(tmp_path, *words)

    assert isinstance(outcome.exception, kind)
    assert message in str(outcome.exception)
