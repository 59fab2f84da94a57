"""The entry point of `shuffledp`: Ctrl-C ends it without a traceback even while it loads."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Load the command, which takes a moment, and run it."""
    from deploy.cli import main as run  # noqa: PLC0415  # after the line above

    run()
