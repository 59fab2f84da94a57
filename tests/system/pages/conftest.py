from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import launch_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser per module: its event loop must end before the next asynchronous test."""
    with launch_browser() as started:
        yield started
