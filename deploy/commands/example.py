"""Examples at the end of a command's help, broken where a shell allows it: copied, they run."""

from typing import Final

AT_ANALYZER: Final = (
    "--analyzer 127.0.0.1:7001 --token-file state/analyzer/operator.token "
    "--authority state/tls/authority.pem"
)
AT_SHUFFLER: Final = (
    "--shuffler 127.0.0.1:7002 --token-file state/shuffler/operator.token "
    "--authority state/tls/authority.pem"
)
"""Options of an operator's commands to a service."""
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
