"""Values that a person types at a terminal, hidden, or pipes in."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.protocols import Kind

_ROOT: Final = Path(__file__).parents[4]
_PROMPT: Final = b"Your value: "
_PATIENCE: Final = 30.0


def _ask(kind: Kind | None, *lines: str) -> str:
    """Type lines into a terminal, one for each prompt, and return all that it showed."""
    code = "from shuffledp.deploy.commands.person import prompt_for_value as ask; "
    code += f"print('took', [ask({kind!r})])"
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(_ROOT)
        os.execv(sys.executable, [sys.executable, "-c", code])  # noqa: S606  # of this program
    shown = b""
    try:
        for place, line in enumerate(lines, start=1):
            while shown.count(_PROMPT) < place:  # what is typed before is thrown away
                shown += _shown(terminal)
            os.write(terminal, line.encode() + b"\n")
        while b"]" not in shown:
            shown += _shown(terminal)
    finally:
        os.close(terminal)  # which ends the process, if it still asks
        os.waitpid(child, 0)
    return shown.decode()


def _shown(terminal: int) -> bytes:
    assert select.select([terminal], [], [], _PATIENCE)[0], "the terminal shows nothing more"
    return os.read(terminal, 4096)


@pytest.mark.parametrize("kind", ["string", "key-value", "categorical", "mean", None])
def test_an_empty_line_is_an_answer_where_a_value_may_be_empty(kind: Kind | None) -> None:
    """The empty text and no owned keys are answers; other kinds are asked again, never shown."""
    may_be_empty = kind in {"string", "key-value"}
    shown = _ask(kind, *[""] if may_be_empty else ["", "7531"])

    assert may_be_empty == ("took ['']" in shown)
    assert (1 if may_be_empty else 2) == shown.count("Your value: ")
    assert "7531" not in shown.partition("took")[0]


@pytest.mark.parametrize("raw", [b"K\xc3\xb6ln\r\n", b"\xef\xbb\xbfK\xc3\xb6ln"])
def test_a_byte_order_mark_and_a_lines_end_are_no_part_of_a_piped_value(raw: bytes) -> None:
    """Some programs begin UTF-8 text with the one, and most end it with the other."""
    code = "from shuffledp.deploy.commands.person import read_piped_value as read; "
    code += "print(ascii(read()))"
    found = subprocess.run(
        [sys.executable, "-c", code], input=raw, capture_output=True, check=True, cwd=_ROOT
    )

    assert b"'K\\xf6ln'" == found.stdout.strip()
