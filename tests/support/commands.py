"""Every command of `shuffledp` with its help and examples, and the commands on pages."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from shuffledp.deploy.cli import app

Command = TyperCommand | TyperGroup

ROOT: Final = Path(__file__).parents[2]
_WIDTH: Final = 78
"""Of help in a terminal of 80 columns."""
_BLOCK: Final = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
_COMMAND: Final = re.compile(
    r"(?:^|\| |/|\$\()(?P<words>shuffledp .*)|(?:operator|loadgen) (?P<inner>.*)"
)
"""A command alone, after a pipe, a folder or `$(`, or as the argument of a compose service."""


def _commands(name: str, command: Command) -> Iterator[tuple[str, Command]]:
    yield name, command
    if isinstance(command, TyperGroup):
        for child in command.commands:
            _, inner, _ = command.resolve_command(typer.Context(command), [child])
            assert isinstance(inner, TyperCommand | TyperGroup)
            yield from _commands(f"{name} {child}", inner)


def _whole() -> Command:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


COMMANDS: Final = dict(_commands("shuffledp", _whole()))
"""Every command and group, by its full name."""


def help_text(name: str) -> str:
    """Print a command's help."""
    outcome = CliRunner().invoke(app, [*name.split()[1:], "--help"], terminal_width=_WIDTH)
    assert 0 == outcome.exit_code
    return outcome.stdout


def joined(text: str) -> list[str]:
    """Return the lines of a shell's text, with continued lines joined."""
    return [line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines()]


def examples(command: Command) -> list[str]:
    """Return the commands in an epilog, each on one line."""
    shown, _, _ = (command.epilog or "").partition("\n\n")
    return joined(shown)[2:]


def words_of(line: str) -> list[str]:
    """Split a command as a shell does, without redirected input."""
    return shlex.split(line.partition(" < ")[0], comments=True)


def called(words: list[str]) -> tuple[str, Command]:
    """Return the full name and the command that a line calls."""
    names = (" ".join(words[:length]) for length in range(len(words), 0, -1))
    return next((name, COMMANDS[name]) for name in names if name in COMMANDS)


def blocks(page: Path, language: str = "") -> list[str]:
    """Return the fenced blocks of a page in a language; by default those without one."""
    text = page.read_text(encoding="utf-8")
    return [inner for named, inner in _BLOCK.findall(text) if named == language]


def commands_on(page: Path) -> list[str]:
    """Return the `shuffledp` commands in a page's blocks."""
    lines = [line for block in blocks(page) for line in joined(block)]
    found = (_COMMAND.search(line) for line in lines)
    return [one["words"] or f"shuffledp {one['inner']}" for one in found if one]
