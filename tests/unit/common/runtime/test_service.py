"""Services that fail to start or to stop close what they opened."""

import threading
from pathlib import Path
from typing import Any, Final

import pytest

from audit.harness.clock import ManualClock
from audit.harness.services import Services
from common.crypto.signing import SigningIdentity
from common.errors import SettingsError, StorageError
from common.runtime.metrics import OF_SERVERS, ProcessMetrics
from common.runtime.service import Service
from common.runtime.settings import ServiceSettings
from tests.support.issuers import people_file

_IDENTITY: Final = SigningIdentity(bytes(32)).public_identity().raw.hex()
_OF_DEVICES: Final = {
    "shuffler": "127.0.0.1:1",
    "analyzer_identity": _IDENTITY,
    "shuffler_identity": _IDENTITY,
    "allow_tasks_without_tokens": True,
    "allow_unlogged_tasks": True,
}


def _databases() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("database")}


@pytest.mark.parametrize(
    ("party", "fields"),
    [
        ("analyzer", {}),
        ("shuffler", {"analyzer": "127.0.0.1:1", "analyzer_identity": _IDENTITY}),
        ("issuer", {"issuer_name": "issuer.example", "people": "people.txt"}),
        ("user_agent", _OF_DEVICES),
    ],
)
async def test_a_service_that_cannot_listen_closes_its_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: str, fields: dict[str, Any]
) -> None:
    """Each database has a thread of its own, which ends when it is closed."""
    monkeypatch.chdir(tmp_path)
    people_file(tmp_path / "people.txt")
    before = _databases()
    with pytest.raises(SettingsError, match="cannot listen") as caught:
        await Services(tmp_path)._start(party, listen="unix:missing/socket", **fields)

    assert list((tmp_path / party).glob("*.sqlite"))
    assert set() == _databases() - before, caught  # its traceback keeps alive what is not closed


async def test_every_part_is_closed_though_some_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last one opened is closed first; each failure is logged."""
    clock, closed = ManualClock(), list[str]()

    def fail() -> None:
        raise OSError

    async def fail_later() -> None:
        raise StorageError

    service = Service(
        settings=ServiceSettings(state_directory=tmp_path, plaintext=True),
        clock=clock,
        tls=None,
        metrics=ProcessMetrics("witness", OF_SERVERS, clock),
        closing=[lambda: closed.append("first"), fail, fail_later, lambda: closed.append("last")],
    )
    await service.stop()

    assert ["last", "first"] == closed
    assert ["not closed", "not closed"] == caplog.messages
    assert ["StorageError", "OSError"] == [vars(one)["fields"]["error"] for one in caplog.records]
