"""Examples in command help, with line breaks that a shell accepts."""

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
    Format a command's example for its `epilog`.

    A first line with only a backspace keeps the help from rewrapping the rest.
    """
    return "\b\nExample:\n" + "\n".join(_broken(command) for command in commands)


def _broken(command: str) -> str:
    """Break a command before options, with backslashes, into lines of a terminal's width."""
    first, *options = command.replace(" --", "\0--").split("\0")
    lines = [f"  {first}"]
    for option in options:
        if len(lines[-1]) + len(option) + 3 > _WIDTH:
            lines[-1] += " \\"
            lines.append(" " * _INDENT + option)
        else:
            lines[-1] += f" {option}"
    return "\n".join(lines)
