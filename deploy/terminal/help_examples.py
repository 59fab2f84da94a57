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
"""Options of operators' commands that call the shuffler; `AT_ANALYZER` is for the analyzer."""
_WIDTH: Final = 78


def example(*commands: str) -> str:
    """Format example commands for the `epilog` of a command's help."""
    # A line with only a backspace keeps Typer from rewrapping the rest.
    return "\b\nExample:\n" + "\n".join(map(_wrapped, commands))


def _wrapped(command: str) -> str:
    """Wrap a command before its options to a terminal's width, with backslashes."""
    first, *options = command.replace(" --", "\0--").split("\0")
    lines = [f"  {first}"]
    for option in options:
        if len(lines[-1]) + len(option) + 3 > _WIDTH:
            lines[-1] += " \\"
            lines.append(f"    {option}")
        else:
            lines[-1] += f" {option}"
    return "\n".join(lines)
