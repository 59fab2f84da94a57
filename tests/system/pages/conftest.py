from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.support.browser import launch_browser

_FOLDER: Final = Path(__file__).parent
_STARTED: Final = list[tuple[ExitStack, Browser]]()


@pytest.fixture(scope="module")
def browser() -> Browser:
    """One browser for all tests of this folder."""
    if not _STARTED:
        stack = ExitStack()
        _STARTED.append((stack, stack.enter_context(launch_browser())))
    return _STARTED[0][1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End the browser after them: its event loop must end before the next asynchronous test."""
    yield
    if _STARTED and (nextitem is None or not nextitem.path.is_relative_to(_FOLDER)):
        _STARTED.pop()[0].close()
