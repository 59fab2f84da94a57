"""The entry point of `shuffledp`: Ctrl-C ends it without a traceback even while it loads."""

import importlib
import signal


def main() -> None:
    """Load the command, which is named by string since it imports this folder, and run it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    importlib.import_module("shuffledp.deploy.cli").main()
