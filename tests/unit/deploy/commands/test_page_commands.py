"""Commands and settings in the documentation exist and lead to a result."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from typer.core import TyperOption

from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.runtime import settings
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.issuer import is_for_browsers
from shuffledp.deploy.load.target import columns_of
from shuffledp.deploy.load.users import draw_values
from shuffledp.deploy.tasks import drafts as draft_file
from shuffledp.deploy.tasks import task_view
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.user_agent.policy import Claim, Policy, check_totals
from shuffledp.user_agent.settings import UserAgentSettings
from tests.support.command_line import shown
from tests.support.commands import COMMANDS, ROOT, blocks, called, commands_on, examples, words_of
from tests.support.tables import table

_PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_ON_PAGES: Final = [(page, line) for page in _PAGES for line in commands_on(page)]
_IN_HELP: Final = [line for command in COMMANDS.values() for line in examples(command)]
_OPERATORS: Final = ROOT / "docs" / "operators" / "index.md"
_TWO_SHUFFLERS: Final = ROOT / "docs" / "operators" / "two-shufflers.md"
_QUICK_START: Final = ROOT / "docs" / "quickstart.md"
_PLANNING: Final = ROOT / "docs" / "researchers" / "planning.md"
_DRAFT: Final = ROOT / "deploy" / "drafts" / "commute.toml"
_PARTIES: Final = {
    "analyzer.toml": AnalyzerSettings,
    "shuffler.toml": ShufflerSettings,
    "issuer.toml": IssuerSettings,
    "user_agent.toml": UserAgentSettings,
}


def _file(name: str, folder: Path) -> Path:
    """Write the block that begins with a file's name, with an identity for each `…`."""
    [text] = [one for one in blocks(_OPERATORS, "toml") if one.startswith(f"# {name}\n")]
    file = folder / name
    file.write_text(text.replace("…", "ab" * 32), encoding="utf-8")
    return file


def _task(file: Path) -> Task:
    """Return the task of a draft."""
    draft = draft_file.read(file)
    return task_view.preview(draft, now=SystemClock().now())


def _given(folder: Path) -> UserAgentSettings:
    """Return the user agent's settings of the page."""
    return settings.load(UserAgentSettings, _file("user_agent.toml", folder), {}, "SHUFFLEDP")


def test_commands_are_found_on_the_pages() -> None:
    """They stand alone, after a pipe or in containers; without them the tests below are empty."""
    lines = [line for _, line in _ON_PAGES]

    assert any(line.startswith("shuffledp plan ") for line in lines)
    assert any("contribute DIGEST --person" in line for line in lines)


@table(("page", "line"), [*_ON_PAGES, *((None, line) for line in _IN_HELP)])
def test_a_command_that_is_shown_has_real_options_and_all_required_ones(
    page: Path | None, line: str
) -> None:
    """No profile gives a required one."""
    words = words_of(line)
    name, command = called(words)
    options = {word for word in words if word.startswith("--")}
    known = {option for parameter in command.params for option in parameter.opts}

    assert page is None or "shuffledp" != name
    assert set() == options - known - {"--help", "--version"}
    for parameter in command.params:
        if parameter.required and isinstance(parameter, TyperOption):
            assert options & set(parameter.opts), parameter.name


def test_devices_accept_the_plans_that_pages_show(tmp_path: Path) -> None:
    """The local cap is no more than that of the user agent on the page."""
    planned = [words_of(line) for line in [*_IN_HELP, *(line for _, line in _ON_PAGES)]]
    caps = [
        float(words[words.index("--local-cap") + 1])
        for words in planned
        if words[:2] == ["shuffledp", "plan"] and "--local-cap" in words
    ]

    assert len(caps) >= 2
    assert max(caps) <= _given(tmp_path).local_epsilon_cap


def test_the_planned_tables_take_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names and values on the page the plan's draft reads the columns of its commands."""
    monkeypatch.chdir(tmp_path)
    [plan] = [line for line in commands_on(_PLANNING) if "--task-kind table" in line]
    draft, people = Path("tables.toml"), Path("people.csv")
    shown(*words_of(plan)[1:])
    planned, sizes = draft.read_text("utf-8"), _task(draft).view_sizes
    [named, _], rng = blocks(_PLANNING, "toml"), np.random.default_rng(1)
    draft.write_text(planned.partition("[tables]")[0] + named, encoding="utf-8")
    people.write_text("region,age\nsouth,old\n#1,young\n,young\n", encoding="utf-8")
    drawn, _ = draw_values(str(people), np.zeros(2, np.uint8), _task(draft), rng)

    assert ["old / south", "young / #1"] == sorted(map(str, drawn))
    assert ("age,region", None, None) == (columns_of(draft), columns_of(_DRAFT), columns_of(None))
    assert _task(draft).view_sizes == sizes


@pytest.mark.parametrize("name", _PARTIES)
def test_the_settings_on_the_page_start_a_service(name: str, tmp_path: Path) -> None:
    """Each of the files loads once the identities are filled in."""
    settings.load(_PARTIES[name], _file(name, tmp_path), {}, "SHUFFLEDP")


def test_the_settings_of_two_organizations_are_settings(tmp_path: Path) -> None:
    """The relay's start it; the others are lines more for the files of the operators' page."""
    texts = [text.replace("…", "ab" * 32) for text in blocks(_TWO_SHUFFLERS, "toml")]
    files = {text.partition("\n")[0].removeprefix("# "): text for text in texts}
    relay = tmp_path / "relay.toml"
    relay.write_text(files.pop("relay.toml"), encoding="utf-8")

    assert "relay" == settings.load(ShufflerSettings, relay, {}, "SHUFFLEDP").role
    assert {"analyzer.toml", "shuffler.toml", "user_agent.toml"} == files.keys()
    for name, text in files.items():
        assert tomllib.loads(text).keys() <= {field.name for field in fields(_PARTIES[name])}


def test_the_first_question_of_up_is_answered_and_released(tmp_path: Path) -> None:
    """One answer is enough for a result, and devices and pages accept the task."""
    task = _task(_DRAFT)
    [answer] = [line for line in commands_on(_QUICK_START) if "contribute" in line]
    cap = _given(tmp_path).local_epsilon_cap
    identity = SigningIdentity.generate().public_identity()
    given = Policy(
        analyzer_identity=identity,
        shuffler_identity=identity,
        allow_tasks_without_tokens=True,
        local_epsilon_cap=cap,
    )

    assert 1 == task.n_min
    assert is_for_browsers(task)
    assert task.local_epsilon <= cap
    assert "car" in task.labels
    assert "echo car |" in _QUICK_START.read_text(encoding="utf-8")
    assert "--person person-2" in answer
    check_totals(given, [], Claim.of(task))
