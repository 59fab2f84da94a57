"""Logs as the services write them."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from common.runtime import logs


@contextmanager
def captured_logs() -> Iterator[io.StringIO]:
    """Log at DEBUG, in the production format, into a buffer; then log as before."""
    own, root, text = logging.getLogger("shuffledp"), logging.getLogger(), io.StringIO()
    before = (own.handlers[:], own.level, own.propagate, root.handlers[:])
    logs.configure("DEBUG")
    for handler in (*own.handlers, *root.handlers):
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(text)
    try:
        yield text
    finally:
        own.handlers[:], own.level, own.propagate, root.handlers[:] = before
