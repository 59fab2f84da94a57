"""Examples at the end of a command's help, broken where a shell allows it: copied, they run."""

from typing import Final

_WIDTH: Final = 78
_INDENT: Final = 4


def example(*commands: str) -> str:
    """
    Write the example of a command for its `epilog`.

    A first line with nothing but a backspace keeps the help from wrapping what follows.
    """
    return "\b\nExample:\n" + "\n".join(_broken(command) for command in commands)


def _broken(command: str) -> str:
    """Break a command before options, with a backslash, into lines that a terminal holds."""
    first, *options = command.replace(" --", "\0--").split("\0")
    lines = [f"  {first}"]
    for option in options:
        if len(lines[-1]) + len(option) + 3 > _WIDTH:
            lines[-1] += " \\"
            lines.append(" " * _INDENT + option)
        else:
            lines[-1] += f" {option}"
    return "\n".join(lines)
