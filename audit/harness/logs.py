"""The services' logs, kept off the terminal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_services() -> Iterator[None]:
    """Disable the logs of services in this process, and enable them again."""
    logger = logging.getLogger("shuffledp")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
