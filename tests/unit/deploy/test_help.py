"""Every command explains itself: what it does, every option, and an example with real ones."""

import shlex
from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.testing import CliRunner

from deploy.cli import app

Command = TyperCommand | TyperGroup


def _commands(name: str, command: Command) -> Iterator[tuple[str, Command]]:
    """Every command and group, by its full name."""
    yield name, command
    if isinstance(command, TyperGroup):
        for child, inner in command.commands.items():
            assert isinstance(inner, TyperCommand | TyperGroup)
            yield from _commands(f"{name} {child}", inner)


def _whole() -> Command:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


_ALL = dict(_commands("shuffledp", _whole()))


def _examples(command: Command) -> list[str]:
    """The commands in an epilog, each on one line."""
    _, _, lines = (command.epilog or "").partition("Example:\n")
    return [line.strip() for line in lines.replace("\\\n", "").splitlines()]


def _called(words: list[str]) -> tuple[str, Command]:
    """The command that a line calls, with its full name."""
    names = (" ".join(words[:length]) for length in range(len(words), 0, -1))
    return next((name, _ALL[name]) for name in names if name in _ALL)


@pytest.mark.parametrize("name", _ALL)
def test_a_command_says_what_it_does_and_gives_an_example(name: str) -> None:
    """In a sentence, which ends."""
    command = _ALL[name]

    assert (command.help or "").strip().split("\n\n")[0].endswith(".")
    assert _examples(command)


@pytest.mark.parametrize("name", _ALL)
def test_every_option_and_argument_is_explained(name: str) -> None:
    """None is a bare name."""
    unexplained = [
        parameter.name
        for parameter in _ALL[name].params
        if not getattr(parameter, "help", None) and parameter.name != "help"
    ]

    assert [] == unexplained


@pytest.mark.parametrize("name", _ALL)
def test_an_example_names_options_that_there_are(name: str) -> None:
    """And every one that is required. Whether it runs is for other tests to say."""
    for example in _examples(_ALL[name]):
        words = shlex.split(example.partition(" < ")[0])
        _, called = _called(words)
        options = {word for word in words if word.startswith("--")}
        known = {option for parameter in called.params for option in parameter.opts}
        assert set() == options - known - {"--help", "--version"}
        for parameter in [] if "--help" in options else called.params:
            if parameter.required and isinstance(parameter, TyperOption):
                assert options & set(parameter.opts), (example, parameter.name)


@pytest.mark.parametrize("name", _ALL)
def test_an_example_names_a_task_as_the_command_takes_it(name: str) -> None:
    """DIGEST stands for all 64 digits; the first few are enough where the analyzer can be asked."""
    for example in _examples(_ALL[name]):
        assert "…" not in example
        words = shlex.split(example.partition(" < ")[0])
        full_name, called = _called(words)
        for parameter in called.params:
            if parameter.name != "task" or "--help" in words:
                continue
            option = isinstance(parameter, TyperOption)
            digits = words[words.index("--task") + 1 if option else len(full_name.split())]
            if digits.startswith("--"):  # left out
                assert not parameter.required
            elif "first digits" in (getattr(parameter, "help", None) or ""):
                assert int(digits, 16) >= 0
            else:
                assert "DIGEST" == digits


def test_every_command_prints_its_help() -> None:
    """With its example, whole."""
    for name, command in _ALL.items():
        outcome = CliRunner().invoke(app, [*name.split()[1:], "--help"])
        assert 0 == outcome.exit_code
        lines = [line.strip() for line in outcome.stdout.splitlines()]
        for line in (command.epilog or "").removeprefix("\b\n").splitlines():
            assert line.strip() in lines


def test_the_list_of_commands_cuts_no_sentence_off() -> None:
    """What a command is for is read whole."""
    for name, command in _ALL.items():
        if isinstance(command, TyperGroup):
            outcome = CliRunner().invoke(app, [*name.split()[1:], "--help"])
            assert "..." not in outcome.stdout.partition("\nCommands:")[2]
