"""What is said of code that failed while it was played: where, and nothing that it was given."""

import traceback
from pathlib import Path


class NotPlayedError(Exception):
    """A scenario could not be played. Its words are the audit's own, and repeat no value."""


def words_of(error: BaseException) -> str:
    """Say of what class an error is, and where it was raised; what it says may repeat a value."""
    if isinstance(error, NotPlayedError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    return f"{type(error).__name__} in {Path(frames[-1].filename).name}, line {frames[-1].lineno}"
