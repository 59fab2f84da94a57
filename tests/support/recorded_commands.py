"""
Seeded commands whose figures are recorded in tests/vectors/commands.json.

Run as `python -m tests.support.recorded_commands` to record them again.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from shuffledp.deploy.cli import app

FILE: Final = Path(__file__).parents[1] / "vectors" / "commands.json"
_DIFFERS: Final = frozenset({"seconds", "shuffledp", "task_digest", "command"})
"""Fields that differ between runs: times, the version, digests under fresh keys."""
_P_VALUE: Final = re.compile(r"smallest p: .*?\)")
"""The production generator's draws have other p-values in each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCommand:
    """A command with its output, and the commands that write its input."""

    commands: tuple[str, ...]
    slow: bool
    output: Any

    def run(self) -> Any:  # JSON
        """Run the commands in a folder of their own; return what the last one prints, as JSON."""
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            printed = [
                CliRunner()
                .invoke(app, [*shlex.split(command), "--json"], catch_exceptions=False)
                .stdout
                for command in self.commands
            ]
        return _repeatable(json.loads(printed[-1]))


def _repeatable(output: Any) -> Any:  # JSON
    """Leave out what differs between runs."""
    if isinstance(output, dict):
        return {key: _repeatable(each) for key, each in output.items() if key not in _DIFFERS}
    if isinstance(output, list):
        return list(map(_repeatable, output))
    return _P_VALUE.sub("smallest p", output) if isinstance(output, str) else output


def recorded() -> Iterator[RecordedCommand]:
    """Yield the recorded commands."""
    for fields in json.loads(FILE.read_text(encoding="utf-8")):
        commands = tuple(fields["commands"])
        yield RecordedCommand(commands=commands, slow=fields["slow"], output=fields["output"])


def record() -> None:
    """Run every command of the file, and write the outputs into it."""
    again = [
        {"commands": each.commands, "slow": each.slow, "output": each.run()} for each in recorded()
    ]
    FILE.write_text(json.dumps(again, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
