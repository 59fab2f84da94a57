from collections.abc import AsyncIterator
from pathlib import Path
from socketserver import BaseServer
from typing import Final

import pytest
import pytest_asyncio

from tests.support.command_line import forking
from tests.support.postgres import postgres
from tests.support.services import Services

__all__ = ["postgres"]

_FOLDER = Path(__file__).parent
_PAUSES: Final = {
    "shuffledp.common.runtime.clock._MIN_PAUSE": 0.1,
    "shuffledp.shuffler.delivery._TICK": 0.02,
    "shuffledp.shuffler.storage.postgres_connection._PAUSE": 0.1,
    "shuffledp.user_agent.inclusion_monitor._MIN_TICK_SECONDS": 0.1,
}
"""Pauses of services that tests need not wait for, in seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of this folder in one event loop, in which the shared services run."""
    inside = {path: path.is_relative_to(_FOLDER) for path in {item.path for item in items}}
    for item in items:
        if inside[item.path] and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session", autouse=True)
def _workers() -> None:
    """Load what workers need, during which no service could answer."""
    with forking(1) as pool:
        pool.submit(int).result()


@pytest.fixture(autouse=True)
def _quick_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses."""
    for name, seconds in _PAUSES.items():
        monkeypatch.setattr(name, seconds)
    monkeypatch.setattr(BaseServer.serve_forever, "__defaults__", (0.02,))  # of pages of metrics


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_services(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    """The three servers, shared by all tests that neither restart them nor alter their files."""
    started = Services(tmp_path_factory.mktemp("services"))
    await started.start()
    yield started
    await started.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def own_services(tmp_path: Path) -> AsyncIterator[Services]:
    """The three servers, started and stopped for one test."""
    started = Services(tmp_path)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
def services(request: pytest.FixtureRequest) -> Services:
    """The three servers: shared, or a test's own if it is marked `own_services`."""
    own = request.node.get_closest_marker("own_services")
    started: Services = request.getfixturevalue("own_services" if own else "shared_services")
    return started
