"""Services that fail to start or to stop close what they opened."""

import threading
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.harness.services import Services
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError, StorageError
from shuffledp.common.runtime.certificates import DEVELOPMENT_DAYS
from shuffledp.common.runtime.http_edge import serve_http
from shuffledp.common.runtime.metrics import OF_SERVERS, ProcessMetrics
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.settings import HttpSettings, ServiceSettings
from shuffledp.common.runtime.tls import development_files
from tests.support.issuers import people_file
from tests.support.scrapes import series_of, value

_IDENTITY, _OTHER = (
    SigningIdentity(bytes(31) + n).public_identity().raw.hex() for n in (b"0", b"1")
)
_OF_DEVICES: Final = {
    "shuffler": "127.0.0.1:1",
    "analyzer_identity": _IDENTITY,
    "shuffler_identity": _OTHER,
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


async def test_a_certificate_for_http_alone_is_checked_and_watched(tmp_path: Path) -> None:
    """It names hosts, and is no party's; an expired one stops the start."""
    clock = ManualClock()
    files = development_files(tmp_path / "tls", "shuffler", clock)
    settings = HttpSettings(
        state_directory=tmp_path,
        plaintext=True,
        http_listen="127.0.0.1:0",
        http_certificate=files.certificate,
        http_key=files.key,
    )
    service = Service(
        settings=settings,
        clock=clock,
        tls=None,
        metrics=ProcessMetrics("issuer", OF_SERVERS, clock),
    )
    await service.serve("shuffledp.v1.Issuer", http=serve_http)
    assert (tmp_path / "http_address").read_text(encoding="ascii").startswith("127.0.0.1:")
    series = series_of(service.metrics.metrics)
    days = "shuffledp_certificate_days_left"
    assert DEVELOPMENT_DAYS == value(series, days, certificate="http own")
    await service.stop()

    clock.seconds += 400 * 86_400
    with pytest.raises(
        SettingsError, match=r"the certificate in \S+\.pem expired on 2002-09-09\. Renew it$"
    ):
        await service.serve("shuffledp.v1.Issuer", http=serve_http)
    await service.stop()


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
