"""Composition root of the publisher."""

from pathlib import Path
from typing import Final

from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.http_server import HttpServer, ServerCertificate
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import TlsFiles, development_files
from shuffledp.publisher.core import Page
from shuffledp.publisher.settings import PublisherSettings

_BUNDLE: Final = Path(__file__).parents[1] / "user_agent" / "web" / "dist"


async def start(settings: PublisherSettings) -> HttpServer:
    """Serve the page, publish its address, and return its server, to be stopped at the end."""
    services = [url for url in (settings.shuffler, settings.issuer) if url is not None]
    certificate = _certificate(settings)
    bundle, has_tls = settings.bundle or _BUNDLE, certificate is not None
    page = Page(bundle, settings.constants(), services, has_tls=has_tls)
    server = HttpServer(page, settings.listen, certificate, hosts=settings.accepted_hosts())
    server.start()
    StateDirectory.open(settings.state_directory).publish("address", server.address)
    logs.event("serving", {"party": "publisher", "address": server.address})
    return server


def _certificate(settings: PublisherSettings) -> ServerCertificate | None:
    """Return the certificate in the settings; None for plaintext."""
    clock = SystemClock()
    files = TlsFiles(certificate=settings.tls_certificate, key=settings.tls_key)
    if settings.tls_directory is not None:
        files = development_files(settings.tls_directory, "publisher", clock)
    if files.certificate is None or files.key is None:
        return None
    files.check("publisher", clock.now())
    return ServerCertificate(files.certificate, files.key)
