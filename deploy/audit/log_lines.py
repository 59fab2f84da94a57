"""What the services log, line by line, and which of them does: all three run in one process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from common.runtime import logs

WHO: Final[ContextVar[str]] = ContextVar("WHO", default="")
"""The party whose code runs: set while it starts, and inherited by whatever it begins."""


class LogLines:
    """Lines as the production formatters write them, with the party that wrote each."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Log everything as production does at its loudest, and keep it; then be as before."""
        own, root = logging.getLogger("shuffledp"), logging.getLogger()
        before = (own.handlers[:], own.level, own.propagate, root.handlers[:])
        logs.configure("DEBUG")
        for logger in (own, root):
            for handler in logger.handlers[:]:
                logger.addHandler(_Keeping(handler, self.lines))
        try:
            yield
        finally:
            own.handlers[:], own.level, own.propagate, root.handlers[:] = before

    @contextmanager
    def heard_too(self) -> Iterator[None]:
        """Keep what is logged meanwhile, beside whoever keeps it already."""
        added = [
            (logger, _Keeping(handler, self.lines))
            for logger in (logging.getLogger("shuffledp"), logging.getLogger())
            for handler in logger.handlers
            if not isinstance(handler, _Keeping)
        ]
        for logger, keeping in added:
            logger.addHandler(keeping)
        try:
            yield
        finally:
            for logger, keeping in added:
                logger.removeHandler(keeping)


class _Keeping(logging.Handler):
    """Keeps what another handler writes."""

    def __init__(self, other: logging.Handler, lines: list[tuple[str, str]]) -> None:
        super().__init__(other.level)
        self.setFormatter(other.formatter)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self._lines.append((WHO.get(), self.format(record)))
