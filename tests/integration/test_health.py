"""The check that a container's engine runs, against real services."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

import user_agent.server
from common.errors import PeerError, SettingsError
from common.runtime.health_check import check
from common.runtime.settings import ServiceSettings
from tests.support.services import Services
from user_agent.settings import UserAgentSettings

_PARTIES = ("analyzer", "shuffler", "user_agent")


def _settings(services: Services, party: str) -> ServiceSettings:
    """What the service itself was started with, as far as all have it."""
    return ServiceSettings(
        state_directory=services.directory / party, tls_directory=services.directory / "tls"
    )


@pytest.mark.parametrize("party", _PARTIES)
async def test_a_service_that_serves_is_healthy(services: Services, party: str) -> None:
    """The analyzer's too, which lets nobody connect without a certificate: its own will do."""
    await check(_settings(services, party), party)


async def test_a_service_on_a_unix_socket_is_asked_there(services: Services) -> None:
    """No certificate is needed for it."""
    settings = UserAgentSettings(
        state_directory=services.directory / "device",
        listen=f"unix:{services.directory}/agent.sock",
        tls_authority=services.directory / "tls" / "authority.pem",
        shuffler=services.shuffler.address,
        analyzer_identity=services.identity,
    )
    device = await user_agent.server.start(settings)
    await check(settings, "user_agent")
    await device.stop()


async def test_a_service_that_listens_everywhere_is_asked_here(services: Services) -> None:
    """0.0.0.0 is nobody's address, and on Linux leads to this machine; as in a container."""
    port = services.shuffler.address.rpartition(":")[2]
    published = services.directory / "shuffler" / "address"
    for listening in (f"0.0.0.0:{port}", f"127.0.0.1:{port}\n"):
        published.write_text(listening, encoding="ascii")
        await check(_settings(services, "shuffler"), "shuffler")


async def test_a_service_that_stopped_is_not(services: Services) -> None:
    """Its address stands there still."""
    await services.shuffler.stop()
    try:
        with pytest.raises(PeerError, match="does not answer"):
            await check(_settings(services, "shuffler"), "shuffler")
    finally:
        await services.start_shuffler()


async def test_another_party_at_the_address_does_not_pass(services: Services) -> None:
    """The certificate must name who is asked for."""
    published = services.directory / "shuffler" / "address"
    published.write_text(services.user_agent.address, encoding="ascii")

    with pytest.raises(PeerError, match="does not answer"):
        await check(_settings(services, "shuffler"), "shuffler")


async def test_a_service_that_has_not_started_is_not(tmp_path: Path) -> None:
    """It has written no address; the sentence names the file."""
    settings = ServiceSettings(state_directory=tmp_path, plaintext=True)

    with pytest.raises(SettingsError, match="address does not say where the service listens"):
        await check(settings, "shuffler")


async def _run(party: str, *arguments: str, **environment: str) -> tuple[int | None, str]:
    """Run the command as the engine does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "common.runtime.health_check", party, *arguments),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "GRPC_VERBOSITY": "NONE", **environment},
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_the_command_reads_what_the_service_reads(services: Services) -> None:
    """Its file, with keys of that party alone, and its environment; the exit status says it."""
    file = services.directory / "shuffler.toml"
    file.write_text(
        f"state_directory = '{services.directory}/nowhere'\n"
        f"tls_directory = '{services.directory}/tls'\n"
        "minimum_batch = 7\n"
        "analyzer = '127.0.0.1:1'\n",
        encoding="utf-8",
    )
    right = {"SHUFFLEDP_SHUFFLER_STATE_DIRECTORY": str(services.directory / "shuffler")}

    assert (0, "") == await _run("shuffler", "--settings", str(file), **right)
    status, said = await _run("shuffler", "--settings", str(file))
    assert (1, 1) == (status, said.count("\n"))
    assert said.startswith("shuffler: ")
