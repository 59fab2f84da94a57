"""Every command explains itself: what it does, every option, and an example with real ones."""

import pytest
from typer.core import TyperGroup, TyperOption

from tests.support.commands import COMMANDS, called, examples, help_text, words_of


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_gives_an_example(name: str) -> None:
    """In a sentence, which ends."""
    command = COMMANDS[name]

    assert (command.help or "").strip().split("\n\n")[0].endswith(".")
    assert examples(command)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name: str) -> None:
    """None is a bare name."""
    unexplained = [
        parameter.name
        for parameter in COMMANDS[name].params
        if not getattr(parameter, "help", None) and parameter.name != "help"
    ]

    assert [] == unexplained


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_names_options_that_there_are(name: str) -> None:
    """And every one that is required. Whether it runs is for other tests to say."""
    for example in examples(COMMANDS[name]):
        words = words_of(example)
        _, command = called(words)
        options = {word for word in words if word.startswith("--")}
        assert "--help" not in options
        known = {option for parameter in command.params for option in parameter.opts}
        assert set() == options - known - {"--version"}
        for parameter in command.params:
            if parameter.required and isinstance(parameter, TyperOption):
                assert options & set(parameter.opts), (example, parameter.name)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_names_a_task_as_the_command_takes_it(name: str) -> None:
    """DIGEST stands for all 64 digits, whichever party is asked."""
    for example in examples(COMMANDS[name]):
        assert "…" not in example
        words = words_of(example)
        full_name, command = called(words)
        for parameter in command.params:
            if parameter.name != "task":
                continue
            option = isinstance(parameter, TyperOption)
            digits = words[words.index("--task") + 1 if option else len(full_name.split())]
            if digits.startswith("--"):  # left out
                assert not parameter.required
            else:
                assert "DIGEST" == digits


def test_every_command_prints_its_help() -> None:
    """With its example, whole."""
    for name, command in COMMANDS.items():
        lines = [line.strip() for line in help_text(name).splitlines()]
        for line in (command.epilog or "").removeprefix("\b\n").splitlines():
            assert line.strip() in lines


def test_the_list_of_commands_cuts_no_sentence_off() -> None:
    """What a command is for is read whole."""
    for name, command in COMMANDS.items():
        if isinstance(command, TyperGroup):
            assert "..." not in help_text(name).partition("\nCommands:")[2]
