from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import a_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser a module: its loop must be gone before another module's asynchronous test."""
    with a_browser() as started:
        yield started
