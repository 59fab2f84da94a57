"""The publisher as it starts: its address, and TLS in each way."""

import asyncio
import http.client
import ssl
from pathlib import Path
from typing import Any

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.certificates import Authority
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import development_files
from shuffledp.common.runtime.witness_service import load_witness_key
from shuffledp.publisher.server import start
from shuffledp.publisher.settings import PublisherSettings

_ANALYZER, _SHUFFLER = (SigningIdentity.generate().public_identity().raw.hex() for _ in range(2))


def _settings(tmp_path: Path, **way: Any) -> PublisherSettings:
    _, witness = load_witness_key(StateDirectory.open(tmp_path / "witness"), "witness")
    return PublisherSettings(
        state_directory=tmp_path / "state",
        shuffler="https://shuffler.example",
        analyzer_identity=_ANALYZER,
        shuffler_identity=_SHUFFLER,
        witnesses=(witness.to_text(),),
        allow_tasks_without_tokens=True,
        **way,
    )


async def test_an_expired_certificate_stops_the_start(tmp_path: Path) -> None:
    """Browsers would refuse the page; the message names the file."""
    Authority.make(tmp_path, "authority", 1e9).issue(tmp_path, "page", 1e9, ["page.example"])
    pair = {"tls_certificate": tmp_path / "page.pem", "tls_key": tmp_path / "page.key"}

    with pytest.raises(SettingsError, match=r"the certificate in .*/page\.pem expired on 2001-"):
        await start(_settings(tmp_path, **pair))


@pytest.mark.parametrize("way", ["plaintext", "tls_directory", "tls_certificate"])
async def test_the_page_is_served_at_the_published_address(tmp_path: Path, way: str) -> None:
    """With a certificate over TLS, and then never without; after the stop, by nobody."""
    tls = tmp_path / "tls"
    files = development_files(tls, "publisher", SystemClock())
    ways: dict[str, dict[str, Any]] = {
        "plaintext": {"plaintext": True},
        "tls_directory": {"tls_directory": tls},
        "tls_certificate": {"tls_certificate": files.certificate, "tls_key": files.key},
    }
    settings = _settings(tmp_path, **ways[way])
    publisher = await start(settings)
    address = (tmp_path / "state" / "address").read_text(encoding="ascii")
    trusted = None if way == "plaintext" else ssl.create_default_context(cafile=files.authority)
    status, body, strict = await asyncio.to_thread(_get, address, trusted)
    other = await asyncio.to_thread(_get, address, trusted, "evil.example")
    await publisher.stop()

    assert (200, publisher.address) == (status, address)
    assert b"Take part" in body
    assert (403, b"") == other[:2]
    assert (None if way == "plaintext" else "max-age=31536000") == strict
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(_get, address, trusted)


def _get(
    address: str, trusted: ssl.SSLContext | None, host: str = ""
) -> tuple[int, bytes, str | None]:
    connection = (
        http.client.HTTPSConnection(address, context=trusted, timeout=10)
        if trusted
        else http.client.HTTPConnection(address, timeout=10)
    )
    try:
        connection.request("GET", "/", headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("strict-transport-security")
    finally:
        connection.close()
