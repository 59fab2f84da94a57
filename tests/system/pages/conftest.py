from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import a_browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for this folder: its loop must be gone before an asynchronous test elsewhere."""
    with a_browser() as started:
        yield started
